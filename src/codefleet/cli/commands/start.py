"""`start` and `run-single`: an engine in the foreground."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli.frame import Frame, command
from codefleet.cli.running import INTERRUPTED
from codefleet.core.errors import StoreError

if TYPE_CHECKING:
    from codefleet.app import Fleet
    from codefleet.app.reading import Stream
    from codefleet.cli.commands.read import Speech
    from codefleet.engine.engine import Engine

RUNNERS = click.option("-n", "--runners", type=click.IntRange(min=0), help="Agents at a time (max_concurrent).")
WORKDIR = click.option("-w", "--workdir", type=click.Path(path_type=Path), help="Only the project that lies there.")
AGENT = click.option(
    "-a", "--agent", "--coder", "--executor", "agent", default="", help="Agent type of tasks with none."
)
UNTIL_IDLE = click.option("--until-idle", is_flag=True, help="End when nothing is left that goes on by itself.")


@command("start")
@RUNNERS
@click.option("--name", default="", help="An engine beside the main one; its agent's name. One runner unless -n.")
@WORKDIR
@AGENT
@UNTIL_IDLE
def start(frame: Frame, runners: int | None, name: str, **more: Any) -> None:
    """Work the backlog off: rules, runners and gates, in the foreground.

    The first Ctrl-C (or SIGTERM) interrupts the agents, keeps their work, puts their tasks back and ends. The second
    ends at once: agents go on under their guards, and the next start adopts them. Exit 1: one runs already, or with
    --until-idle a task has failed.
    """
    run(frame, runners, name, **more)


@command("run-single")
@click.option("--name", required=True, help="The name of its agent.")
@RUNNERS
@WORKDIR
@AGENT
@UNTIL_IDLE
def run_single(frame: Frame, runners: int | None, name: str, **more: Any) -> None:
    """One runner in the foreground, which says everything it does."""
    run(frame, runners, name, **more)


def run(frame: Frame, runners: int | None, name: str, *, agent: str, workdir: Path | None, until_idle: bool) -> None:
    """Run an engine until it is stopped, or idle; exit 1 when a task failed meanwhile."""
    flags = {"agent.default": agent} if agent else {}
    place = frame.cwd / workdir.expanduser() if workdir else None

    async def work(fleet: Fleet) -> bool:
        for warning in fleet.configuration.warnings:
            frame.say(warning)
        slots = runners if runners is not None else 1 if name else fleet.configuration.home().max_concurrent
        async with fleet.working(slots=slots, name=name, agent=agent, workdir=place, until_idle=until_idle) as engine:
            table = not name and sys.stderr.isatty() and not frame.json
            ok = await watched(frame, fleet, engine, table=table, verbose=bool(name))
        frame.say(rest(await fleet.status()))
        return ok

    if not frame.run(work, create=True, flags=flags):
        click.get_current_context().exit(1)


def rest(status: dict[str, Any]) -> str:
    """How things stand when the engine has ended, and what a person may do."""
    from codefleet.cli.commands.status import counts, waiting

    judged = "\nsome awaits your judgement: `codefleet review`" if status["tasks"]["verified"] else ""
    held = "\nsome waits: `codefleet why`" if status["tasks"]["pending"] + status["tasks"]["blocked"] else ""
    return f"{counts(status)}{judged}{held}\n{waiting(status)}".rstrip()


async def watched(frame: Frame, fleet: Fleet, engine: Engine, *, table: bool, verbose: bool = False) -> bool:
    """Run the engine and show what it does: a live table, or the events as lines (with `--json` on stdout). Verbose:
    what agents do and say as well."""
    from codefleet.app import work

    lines = None if table or frame.quiet else sys.stderr
    async with work.logging(fleet, lines), _stoppable(engine), _showing(frame, fleet, table=table, verbose=verbose):
        return await engine.run()


def _showing(frame: Frame, fleet: Fleet, *, table: bool, verbose: bool) -> AbstractAsyncContextManager[None]:
    if frame.json or (not table and not frame.quiet):
        return _events(frame, fleet, verbose=verbose)
    if not table:
        return nullcontext()
    from codefleet.cli.live import showing

    return showing(fleet)


@asynccontextmanager
async def _events(frame: Frame, fleet: Fleet, *, verbose: bool) -> AsyncIterator[None]:
    import anyio

    from codefleet.cli.commands.read import Speech

    stream, spoken = await fleet.stream((), activity=verbose), Speech()
    await stream.skip()

    async with anyio.create_task_group() as group:
        group.start_soon(_follow, frame, stream, spoken)
        yield
        group.cancel_scope.cancel()
    with suppress(StoreError, OSError):
        for one in await stream.so_far():
            _tell(frame, one, spoken)


async def _follow(frame: Frame, stream: Stream, spoken: Speech) -> None:
    """Tell what comes. Neither a store that is out of reach nor a reader who has gone stops the work."""
    import anyio

    while True:
        try:
            async for one in stream.follow():
                _tell(frame, one, spoken)
        except StoreError:
            await anyio.sleep(1)
        except OSError:
            return


def _tell(frame: Frame, one: dict[str, Any], spoken: Speech) -> None:
    from codefleet.cli.commands.read import told

    if frame.json:
        frame.line(one)
    elif text := spoken(one) if one["position"] is None else told(one):
        frame.say(text)


@asynccontextmanager
async def _stoppable(engine: Engine) -> AsyncIterator[None]:
    """The first signal asks it to end and keeps all work; the second ends at once."""
    import anyio

    async def listen() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                _first(engine, number)
                break
            async for _ in signals:
                _at_once()

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        yield
        group.cancel_scope.cancel()


def _first(engine: Engine, number: int) -> None:
    name = signal.Signals(number).name
    _last_words(f"{name}: agents are interrupted, their work is kept; once more ends at once and leaves them running")
    engine.stop(now=True)


def _at_once() -> None:
    """No goodbye: what runs is kept by its guards, and adopted later."""
    _last_words("ended; agents go on under their guards, the next start adopts them")
    os._exit(INTERRUPTED)


def _last_words(text: str) -> None:
    try:
        sys.stderr.write(f"\n{text}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads them any more
        return
