"""`task`, `logs`, `log`, `events`: what is written of the work."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.frame import FleetCommand, Frame, command, offered

if TYPE_CHECKING:
    from codefleet.app import Fleet

HASH = re.compile(r"[0-9a-f]{40}")
ARTIFACTS = ("log", "plan", "knowledge", "qa", "result", "diff")
LOOK = 0.25
"""Seconds between looks at a file that grows."""


class WithRunning(FleetCommand):
    """Its help ends with the tasks that run now, when the store says so quickly."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        frame = ctx.find_object(Frame)
        rows = running(frame) if frame else []
        if rows:
            with formatter.section("Running now"):
                formatter.write_dl(rows)
        super().format_epilog(ctx, formatter)


def running(frame: Frame) -> list[tuple[str, str]]:
    """The tasks in progress, each with its agent type and model; nothing when that takes longer than help may."""
    import anyio

    from codefleet.app import reading
    from codefleet.core.errors import CodeFleetError

    async def work(fleet: Fleet) -> list[tuple[str, str]]:
        with anyio.move_on_after(0.2):
            return [(task.id, _running(task)) for task in await reading.at_work(fleet.store)]
        return []

    try:
        return Frame(frame.home_flag, quiet=True).run(work)
    except (CodeFleetError, OSError):
        return []


def _running(task: Any) -> str:
    run = task.run
    return f"[{run.agent}/{run.model or 'default'}] {words.one_line(task.title)}" if run else words.one_line(task.title)


def _artifact_command() -> click.Command:
    @click.argument("task", shell_complete=offered)
    @click.argument("what", type=click.Choice(ARTIFACTS), metavar="|".join(ARTIFACTS))
    def run(frame: Frame, task: str, what: str) -> None:
        """Print one artifact of a task, raw."""
        text = frame.run(lambda fleet: fleet.artifact(task, what))
        frame.data({"task_id": task, "artifact": what, "text": text})
        if not frame.json:
            frame.raw(text)

    return click.command("task", cls=WithRunning)(click.pass_obj(run))


task = _artifact_command()


# ----------------------------------------------------------------------------------------------------------- logs


@command("logs")
@click.argument("target", required=False, shell_complete=offered)
@click.option("-n", "count", type=click.IntRange(min=1), default=50, show_default=True, help="The last so many lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on while it comes.")
@click.option("--raw", is_flag=True, help="Exactly what was printed.")
def logs(frame: Frame, target: str | None, count: int, *, follow: bool, raw: bool) -> None:
    """What an agent does and says; without TARGET the fleet's own log."""
    if target is None:
        frame.run(lambda fleet: _own(frame, fleet, count, follow=follow, raw=raw))
    elif raw:
        frame.run(lambda fleet: _raw(fleet, target, count, follow=follow))
    else:
        frame.run(lambda fleet: _spoken(frame, fleet, target, count, follow=follow))


@command("log")
@click.argument("count", required=False, type=click.IntRange(min=1), metavar="[N]")
def log(frame: Frame, count: int | None) -> None:
    """The newest log of the fleet, raw: whole, or its last N lines."""

    async def work(fleet: Fleet) -> None:
        await _own(frame, fleet, count or 0, follow=False, raw=True)

    frame.run(work)


async def _spoken(frame: Frame, fleet: Fleet, target: str, count: int, *, follow: bool) -> None:
    from codefleet.app import reading

    run, spoken = await fleet.newest_run(target), Speech()
    last = await reading.tail(fleet.store, run, count) if run else []
    if frame.json and not follow:
        frame.data(last)
        return
    for one in last:
        frame.tell(one, spoken)
    if not last and not follow:
        frame.say(f"nothing of {target} yet: `codefleet why {target}` says where it stands")
    if follow:
        key = (await fleet.task(target)).id
        seen: reading.Seen = {}
        if last:
            reading.mark(seen, run, last[-1]["data"]["n"])
        async for one in reading.follow_run(fleet.store, key, seen):
            frame.tell(one, spoken)


async def _raw(fleet: Fleet, target: str, count: int, *, follow: bool) -> None:
    import anyio

    from codefleet.app import reading
    from codefleet.core.errors import Failed

    run = await fleet.newest_run(target)
    paths = reading.outputs(fleet.home, run) if run else []
    if not paths and not follow:
        raise Failed(f"nothing was printed for {target} yet", hint=f"codefleet why {target}")
    _bytes(reading.last_lines(paths, count))
    offsets = {path: path.stat().st_size for path in paths}
    while follow:
        run = await fleet.newest_run(target)
        data = await reading.grown(reading.outputs(fleet.home, run), offsets) if run else b""
        _bytes(data)
        if not data and reading.rests(await fleet.task(target)):
            return
        if not data:
            await anyio.sleep(LOOK)


def _bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _own(frame: Frame, fleet: Fleet, count: int, *, follow: bool, raw: bool) -> None:
    """The fleet's log: the newest file, and what is added to it."""
    import anyio

    from codefleet.app import reading

    files = reading.fleet_logs(fleet.home)
    if not files:
        frame.say("there is no log yet: an engine writes it")
    _own_lines(frame, reading.last_lines(files[-1:], count), raw=raw)
    offsets = {path: path.stat().st_size for path in files}
    while follow:
        data = await reading.grown(_newest(reading.fleet_logs(fleet.home)), offsets)
        _own_lines(frame, data, raw=raw)
        if not data:
            await anyio.sleep(LOOK)


def _newest(files: Sequence[Path]) -> list[Path]:
    return list(files[-2:])


def _own_lines(frame: Frame, data: bytes, *, raw: bool) -> None:
    if raw and not frame.json:
        _bytes(data)
        return
    from codefleet.app.reading import log_words

    for line in data.splitlines():
        said = _parsed(line)
        if frame.json:
            frame.line(said)
        elif said:
            click.echo(log_words(said))
    sys.stdout.flush()


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and {"ts", "level", "event"} <= said.keys() else {}


# --------------------------------------------------------------------------------------------------------- events


@command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on for ever; begins now unless --after says from where.")
@click.option("--all", "everything", is_flag=True, help="The activity of agents too.")
@click.option("--type", "kinds", multiple=True, metavar="T,…", help="Only these kinds.")
@click.option("--target", default="", help="Only what concerns this task, run or agent.")
@click.option("--after", default="", metavar="POSITION", help="Only what is behind this position.")
def events(frame: Frame, kinds: Sequence[str], target: str, after: str, *, follow: bool, everything: bool) -> None:
    """The stream of events, one a line."""
    chosen = [kind.strip() for text in kinds for kind in text.split(",") if kind.strip()]

    async def work(fleet: Fleet) -> None:
        stream = await fleet.stream(chosen, name=target, activity=everything, after=after)
        if not follow:
            for one in await stream.so_far():
                frame.tell(one, told)
            return
        if not after:
            await stream.skip()
        async for one in stream.follow():
            frame.tell(one, told)

    frame.run(work)


def told(one: Mapping[str, Any]) -> str:
    """An event in a line."""
    where = one["run"] or one["task_id"] or "-"
    fields = " ".join(_fields(one["data"]))
    return f"{words.clock(one['ts'])} {one['kind']:<18} {where:<11} {fields}".rstrip()


def _fields(data: Mapping[str, Any]) -> Iterator[str]:
    """What an event says, as `name=value`; what is within something stands for itself."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _fields({inner: known for inner, known in value.items() if known})
        elif value not in (None, "", []) and (name != "by" or value == "person"):
            yield f"{name}={_short(words.clock(value) if name == 'until' else value)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    plain = text[:12] if HASH.fullmatch(text) else words.cut(words.one_line(text), 120)
    return f'"{plain}"' if " " in plain else plain


class Speech:
    """What agents did and said, for people. It remembers which tools they called: a result bears an id alone."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], str] = {}

    def __call__(self, one: Mapping[str, Any]) -> str:
        """An activity in words; empty when there is nothing to tell."""
        data = one["data"]
        if one["kind"] == "tool_call":
            text = self._tool(one["run"], data)
        else:
            text = _SPOKEN[one["kind"]](data) if one["kind"] in _SPOKEN else ""
        return f"{words.paint(words.clock(one['ts']), 'dim')}  {words.clean(text).rstrip()}" if text.strip() else ""

    def _tool(self, run: str, data: Mapping[str, Any]) -> str:
        key, name = (run, str(data.get("id") or "")), data.get("name")
        if name:
            self._tools[key] = name
            return f"> {name} {_short(data.get('input') or '')}{_mark(data)}"
        return f"> {self._tools.get(key, 'a tool')}{_mark(data)}" if _mark(data) else ""


def _mark(data: Mapping[str, Any]) -> str:
    """How a tool call ended, when it is worth a word."""
    status = data.get("status") or ""
    return "" if status in {"", "started", "ok", "completed"} else f" ({status})"


def _file(data: Mapping[str, Any]) -> str:
    return f"~ {data.get('path')} +{data.get('lines_added') or 0} -{data.get('lines_removed') or 0}"


def _ended(what: str) -> Callable[[Mapping[str, Any]], str]:
    """A setup command or a gate: what it printed is worth reading when it failed."""

    def tell(data: Mapping[str, Any]) -> str:
        code = data.get("exit_code")
        verdict = "green" if code == 0 else "exit unknown" if code is None else f"exit {code}"
        printed = "" if code == 0 else str(data.get("text") or "").rstrip()
        return f"[{what}] {words.one_line(str(data.get('command') or ''))}: {verdict}" + "".join(
            f"\n          {line}" for line in printed.splitlines()
        )

    return tell


_SPOKEN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "session_started": lambda data: f"= session {data.get('session_id') or ''} {data.get('model') or ''}",
    "message": lambda data: str(data.get("text", "")),
    "file_changed": _file,
    "retry": lambda data: f"! retry {data.get('status') or ''}, after {data.get('after')} s",
    "permission_denied": lambda data: f"! denied: {data.get('tool')}",
    "gate_output": _ended("gate"),
    "setup_output": _ended("setup"),
    "log": lambda data: str(data.get("text", "")),
    "session_ended": lambda data: f"= session ended: {data.get('reason') or ''}",
}
