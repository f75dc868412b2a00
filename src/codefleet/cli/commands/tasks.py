"""`tasks`, `list-tasks`, `ready`: lists of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.frame import Frame, command

if TYPE_CHECKING:
    from codefleet.app import Fleet
    from codefleet.ports import Filter

STATES = "blocked pending assigned in_progress waiting verifying verified landing completed failed cancelled".split()
AT_WORK = ("assigned", "in_progress", "waiting", "verifying", "verified", "landing")


def _states(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[str]:
    """Names of states, separated by commas."""
    found = [name.strip().lower().replace("-", "_") for value in values for name in value.split(",") if name.strip()]
    for name in found:
        if name not in STATES:
            raise click.BadParameter(f"{name!r} is no state; there are {' '.join(STATES)}")
    return found


STATUS = click.option("-s", "--status", multiple=True, metavar="S,…", callback=_states, help="Only these states.")
READY = click.option("--ready", "only_ready", is_flag=True, help="Only those that may start.")
ALL = click.option("--all", "everything", is_flag=True, help="Tasks in any state.")


@command("tasks")
@STATUS
@READY
@ALL
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most to show.")
@click.option("-w", "--watch", is_flag=True, help="Stay and show them again when something changes.")
def tasks(frame: Frame, status: Sequence[str], limit: int, *, only_ready: bool, everything: bool, watch: bool) -> None:
    """Tasks by their place in the queue; without a filter those in progress."""
    if watch:
        where = _where(status, only_ready=only_ready, everything=everything)
        frame.run(lambda fleet: _watch(frame, fleet, where, limit))
    _list(frame, status, limit, only_ready=only_ready, everything=everything)


async def _watch(frame: Frame, fleet: Fleet, where: Filter, limit: int) -> None:
    from codefleet.cli.live import watching

    async def look() -> list[dict[str, Any]]:
        return (await fleet.listed(where, limit))[0]

    await watching(frame, fleet, look, listing)


@command("list-tasks")
@STATUS
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The most to show.")
def list_tasks(frame: Frame, status: Sequence[str], limit: int) -> None:
    """Tasks in any state."""
    _list(frame, status, limit, only_ready=False, everything=True)


def _list(frame: Frame, states: Sequence[str], limit: int, *, only_ready: bool, everything: bool) -> None:
    where = _where(states, only_ready=only_ready, everything=everything)

    async def work(fleet: Fleet) -> tuple[list[dict[str, Any]], bool, Mapping[str, int]]:
        found, more = await fleet.listed(where, limit)
        return found, more, await fleet.counts()

    found, more, counts = frame.run(work)
    frame.data(found, lambda: listing(found))
    if not found:
        frame.say(_none(states, only_ready=only_ready))
    _footer(frame, found, {} if everything else counts, more=more)


def _where(states: Sequence[str], *, only_ready: bool, everything: bool) -> Filter:
    from codefleet.core.model import Status
    from codefleet.ports import Filter

    chosen = states or (() if everything or only_ready else AT_WORK)
    return Filter(status=tuple(Status(name) for name in chosen), ready=only_ready)


def _none(states: Sequence[str], *, only_ready: bool) -> str:
    return f"there are no {'ready' if only_ready else ' or '.join(states) or 'such'} tasks"


def _footer(frame: Frame, found: Sequence[Any], counts: Mapping[str, int], *, more: bool) -> None:
    shown = {one["status"] for one in found}
    rest = [f"{number} {name}" for name, number in counts.items() if number and name not in shown]
    if more:
        frame.say("there are more: raise --limit")
    if rest and not frame.json:
        frame.say(f"also {', '.join(rest)}: `codefleet tasks --all`")


def listing(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return ""
    live = any(one["live"] for one in found)
    head = ["ID", "STATUS", "PRI", "TITLE", "AGE", "NOTE"]
    more = ["STARTED", "ELAPSED", "IDLE", "CONTEXT", "EVENTS", "CODER", "MODEL", "CWD"] if live else []
    rows = [[*_row(one), *(_live(one) if live else ())] for one in found]
    return words.table(head + more, rows, wide="TITLE")


def _row(one: Mapping[str, Any]) -> list[str]:
    age = words.since(one["created_at"])
    return [one["id"], words.state(one["status"]), str(one["priority"]), words.one_line(one["title"]), age, _note(one)]


def _note(one: Mapping[str, Any]) -> str:
    """What one must know of it in a few words."""
    if one["status"] == "blocked":
        return f"waits for {', '.join(one['blocked_by'])}"
    if one["hold"]:
        return words.cut(words.one_line(one["hold"]["text"]), 60)
    if one["status"] == "failed":
        return words.cut(words.one_line(one["error_message"] or ""), 60)
    if one["question"] and one["question"]["open"]:
        return words.cut(words.one_line(one["question"]["text"]), 60)
    if one["awaiting"]:
        return f"awaits {one['awaiting']}{'' if one['proven'] else ', unproven'}"
    return "unproven" if one["proven"] is False and one["status"] == "completed" else ""


def _live(one: Mapping[str, Any]) -> list[str]:
    live = one["live"]
    if not live:
        return ["-"] * 7 + [one["cwd"] or "-"]
    pct = live["context_pct"]
    context = "-" if pct is None else words.paint(f"{pct:.0f}%", "red" if pct >= 80 else "yellow" if pct >= 50 else "")
    return [
        words.clock(one["started_at"]),
        words.duration((live["elapsed_ms"] or 0) / 1000),
        "-" if live["idle_ms"] is None else words.duration(live["idle_ms"] / 1000),
        context,
        str(live["events"]),
        words.paint(live["agent"] or "-", "dim" if live["agent_inherited"] else "bold"),
        words.paint(live["model"] or "-", "dim" if live["model_inherited"] else "bold"),
        one["cwd"] or "-",
    ]


@command("ready")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most to show.")
def ready(frame: Frame, limit: int) -> None:
    """Tasks that may start, one a line: id, title, folder."""
    where = _where((), only_ready=True, everything=True)

    async def work(fleet: Fleet) -> list[dict[str, Any]]:
        return (await fleet.listed(where, limit))[0]

    found = frame.run(work)
    lines = [f"{one['id']}\t{words.one_line(one['title'])}\t{one['cwd'] or '-'}" for one in found]
    frame.data(found, "\n".join(lines))
    if not found:
        frame.say(_none((), only_ready=True))
