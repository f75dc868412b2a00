"""`demo`: a fleet of scripted agents at work on a real repository, for everybody to see."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.frame import Frame, command

if TYPE_CHECKING:
    from codefleet.app import Fleet
    from codefleet.app.demonstration import Stage


@command("demo")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="Where; default: a new folder for temporary files."
)
@click.option("--rm", is_flag=True, help="Remove it at the end.")
@click.option("--pace", type=float, default=1.0, hidden=True, help="How slowly agents think.")
def demo(frame: Frame, folder: Path | None, pace: float, *, rm: bool) -> None:
    """See a fleet at work: a real git repository, a backlog with dependencies, three scripted agents side by side.

    No key, no account, nothing outside one folder. Takes about 20 seconds.
    """
    import anyio

    from codefleet.app import demonstration

    place = demonstration.stage(frame.cwd / folder.expanduser() if folder else None)
    demonstration.build(place)
    frame.say(_intro(place))
    tasks, ok = anyio.run(_play, frame, place, pace)
    frame.say("")
    frame.data(_document(place, tasks), lambda: _summary(tasks))
    if rm:
        anyio.run(demonstration.remove, place)
        frame.say(f"{place.folder} is removed")
    else:
        frame.say(_look(place, tasks))
    if not ok:
        click.get_current_context().exit(1)


async def _play(frame: Frame, place: Stage, pace: float) -> tuple[list[dict[str, Any]], bool]:
    from codefleet.app import demonstration, open_fleet
    from codefleet.cli.commands.start import watched

    environ = demonstration.environment(os.environ)
    async with open_fleet(place.home, environ=environ, cwd=place.repository) as fleet:
        ids = await demonstration.fill(fleet, place, pace)
        async with fleet.working(slots=3, until_idle=True) as engine, _person(fleet, pace):
            ok = await watched(frame, fleet, engine, table=sys.stderr.isatty() and not frame.json)
        return await demonstration.outcome(fleet, ids), ok


@asynccontextmanager
async def _person(fleet: Fleet, pace: float) -> AsyncIterator[None]:
    """Somebody who answers questions meanwhile."""
    import anyio

    from codefleet.app import demonstration

    async with anyio.create_task_group() as group:
        group.start_soon(demonstration.answer, fleet, pace)
        yield
        group.cancel_scope.cancel()


def _intro(place: Stage) -> str:
    return words.wrapped(
        f"A small Python project lies in {place.repository}, six tasks are on its backlog, two wait for others. "
        "Three scripted agents work on them side by side, each in its own git worktree; a task counts as done when the "
        "project's tests pass on what it made. One agent makes a mistake, one asks a question (the demo answers).\n"
    )


def _summary(tasks: Sequence[Mapping[str, Any]]) -> str:
    head = ["TASK", "TITLE", "STATE", "PROOF", "RUNS", "TOOK", "NOTE"]
    return words.table(head, [_row(task) for task in tasks], wide="TITLE")


def _row(task: Mapping[str, Any]) -> list[str]:
    proof = {True: "proven", False: "unproven", None: "-"}[task["proven"]]
    took = words.duration((task["actual_duration_ms"] or 0) / 1000)
    return [
        *(task["id"], words.one_line(task["title"]), words.state(task["status"]), proof),
        *(str(len(task["runs"])), took, _note(task)),
    ]


def _note(task: Mapping[str, Any]) -> str:
    if task["rounds"]:
        return f"its gate was red; repaired in round {task['rounds'] + 1}"
    if task["question"]:
        return f"asked, and was answered: {words.one_line(task['question']['answer'] or '')}"
    if task["depends_on"]:
        return f"built on {words.count(len(task['depends_on']), 'other task')}"
    return words.one_line(task["error_message"] or "")


def _look(place: Stage, tasks: Sequence[Mapping[str, Any]]) -> str:
    """What is worth looking at, as commands to be copied."""
    from codefleet.app.demonstration import short

    fleet = f"{words.program()} --home {short(place.home.path)}"
    key = next((task["id"] for task in tasks if task["rounds"]), tasks[0]["id"])
    last = next((task["branch_name"] for task in tasks if task["title"].startswith("Describe")), "main")
    lines = [
        (f"{fleet} show {key}", "one task: its run, its evidence"),
        (f"{fleet} logs {key}", "what its agent did and said"),
        (f"{fleet} task {key} diff", "what it changed"),
        (f"{fleet} events", "every step of all of them"),
        (f"git -C {short(place.repository)} log --graph --oneline {last}", "how the work came together"),
    ]
    shown = "\n".join(f"  # {what}\n  {text}" for text, what in lines)
    return f"\nAll of it lies in {place.folder} (remove it whenever you like). Look at:\n\n{shown}"


def _document(place: Stage, tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "folder": str(place.folder),
        "home": str(place.home.path),
        "repository": str(place.repository),
        "tasks": tasks,
    }
