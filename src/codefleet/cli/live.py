"""A table that shows the fleet at work, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codefleet.cli import words
from codefleet.cli.words import COLOURS
from codefleet.core.errors import StoreError

if TYPE_CHECKING:
    from codefleet.app import Fleet
    from codefleet.cli.frame import Frame

TICK = 1.0
"""Seconds between pictures when nothing happens."""
NEXT = 3
"""How many tasks that wait are shown."""
TOLD = {
    "task_completed": "green",
    "task_failed": "red",
    "task_cancelled": "dim",
    "task_waiting": "yellow",
    "gates_failed": "yellow",
    "task_held": "yellow",
    "task_requeued": "yellow",
    "paused": "yellow",
    "resumed": "green",
    "error": "red",
}
"""Facts that are told above the table, each in its colour."""


@asynccontextmanager
async def showing(fleet: Fleet, console: Console | None = None) -> AsyncIterator[None]:
    """Show the fleet while the context lasts; the last picture stays."""
    console = console or Console(stderr=True, highlight=False)
    stream = await fleet.stream(list(TOLD), activity=False)
    await stream.skip()
    titles: dict[str, str] = {}
    with Live(console=console, auto_refresh=False) as live:

        async def show() -> None:
            for one in await stream.so_far():
                console.print(await _told(fleet, one, titles))
            live.update(await picture(fleet), refresh=True)

        async def keep_showing() -> None:
            """Neither a store that is out of reach nor a terminal that has gone stops the work."""
            while True:
                with suppress(StoreError, OSError):
                    position = await fleet.store.position()
                    await show()
                    await fleet.store.changed(position, TICK)
                await anyio.sleep(TICK / 10)

        async with anyio.create_task_group() as group:
            group.start_soon(keep_showing)
            yield
            group.cancel_scope.cancel()
        with suppress(StoreError, OSError):
            await show()


async def watching(frame: Frame, fleet: Fleet, look: Callable[[], Awaitable[Any]], shown: Callable[[Any], str]) -> None:
    """Look again whenever something happens, for ever: a screen on a terminal, else each change as lines."""
    screen = Live(console=Console(highlight=False), auto_refresh=False) if sys.stdout.isatty() else None
    before = None
    with screen or nullcontext():
        while True:
            position = await fleet.store.position()
            found = await look()
            if screen is not None and not frame.json:
                screen.update(Text.from_ansi(shown(found)), refresh=True)
            elif found != before:
                frame.tell(found, shown)
            before = found
            await fleet.store.changed(position, TICK)


async def _told(fleet: Fleet, one: Mapping[str, Any], titles: dict[str, str]) -> Text:
    key = one["task_id"] or ""
    if key and key not in titles:
        titles[key] = words.one_line((await fleet.task(key)).title)
    data = one["data"]
    why = next((data[name] for name in ("reason", "why", "text", "gate", "outcome") if data.get(name)), "")
    subject = f"{key} {titles.get(key, '')}" if key else str(data.get("selector", ""))
    word = str(one["kind"]).removeprefix("task_").replace("_", " ")
    line = Text(f"{words.clock(one['ts'])}  ", style="dim")
    line.append(f"{word:<12}", style=TOLD[one["kind"]])
    return line.append(f" {subject}{'  ' + words.one_line(str(why)) if why else ''}")


async def picture(fleet: Fleet) -> Group:
    """The fleet as it is now: who works on what, what comes next, how much is done."""
    status = await fleet.status()
    tasks = {one["id"]: one for one in await fleet.shown(NEXT)}
    table = _agents(status["agents"], tasks)
    return Group(*([table] if table.row_count else []), _counts(status), *_asking(status))


def _agents(agents: Sequence[Mapping[str, Any]], tasks: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    told = 4 if any(task["live"] and task["live"]["does"] for task in tasks.values()) else None
    for name, ratio in (("AGENT", None), ("STATUS", None), ("TASK", None), ("TITLE", 3), ("FOR", None), ("DOES", told)):
        table.add_column(name, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for agent in agents:
        if agent["status"] != "offline":
            table.add_row(*_agent(agent, tasks.get(agent["current_task_id"] or "")))
    for task in tasks.values():
        if task["status"] == "pending":
            table.add_row(
                "", Text("next", style="dim"), task["id"], Text(words.one_line(task["title"]), style="dim"), "", ""
            )
    return table


def _agent(agent: Mapping[str, Any], task: Mapping[str, Any] | None) -> list[Text | str]:
    status = task["status"] if task else agent["status"]
    shown = Text(status.replace("_", " "), style=_style(status))
    if task is None:
        return [agent["name"], shown, "", "", "", ""]
    live = task["live"] or {}
    elapsed = words.duration((live.get("elapsed_ms") or 0) / 1000) if live else ""
    return [
        agent["name"],
        shown,
        task["id"],
        Text(words.one_line(task["title"])),
        elapsed,
        Text(words.one_line(live.get("does") or "")),
    ]


def _style(status: str) -> str:
    return COLOURS.get(status, "")


def _counts(status: Mapping[str, Any]) -> Text:
    line = Text()
    for name, number in status["tasks"].items():
        if number:
            line.append(f"{number} {name.replace('_', ' ')}  ", style=_style(name))
    return line


def _asking(status: Mapping[str, Any]) -> list[Text]:
    lines = [
        Text(f"paused: {one['selector']}: {words.one_line(one['reason'])}", style="yellow") for one in status["pauses"]
    ]
    if status["questions"]:
        number = words.count(len(status["questions"]), "open question")
        lines.append(Text(f"{number}: `codefleet answer`", style="yellow"))
    return lines
