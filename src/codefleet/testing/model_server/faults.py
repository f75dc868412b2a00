"""The fault matrix: the real Claude Code meets every fault of the scripted model, and what came of it is a table.

    python -m codefleet.testing.model_server.faults [--program PATH] [--jobs N] [--slow] [NAME …]

The task of each row is to write a file, to stage it and to say so; the fault hits the second of these three requests.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from codefleet.core.settings import BUILT_IN
from codefleet.drivers.claude import Claude
from codefleet.ports import EndingKind, Order, Processes, SystemClock
from codefleet.processes.spools import Spools
from codefleet.testing.drivers import Live, first_order, live
from codefleet.testing.model_server.script import Fault, Op, Script, say, shell, turn, write
from codefleet.testing.model_server.server import ModelServer

FOR_EVER = -1
_WAIT = ("python3", "-c", "import time; time.sleep(130)")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault, and how the agent is to be set for it."""

    name: str
    fault: Fault | None = None
    then: Op = field(default_factory=lambda: shell("git add -A"))
    gate: tuple[str, ...] = ()
    slow: bool = False
    """Takes many minutes: only with --slow."""


def _http(status: int, times: int = FOR_EVER, retry_after: float | None = None) -> Fault:
    return Fault(kind="http", status=status, times=times, retry_after=retry_after)


ROWS: Sequence[Row] = (
    Row(name="no fault"),
    Row(name="429 once, retry-after 2", fault=_http(429, 1, 2)),
    Row(name="429 once", fault=_http(429, 1)),
    Row(name="429 for ever, retry-after 1", fault=_http(429, retry_after=1)),
    Row(name="529 twice", fault=_http(529, 2)),
    Row(name="500 for ever", fault=_http(500)),
    Row(name="400 for ever", fault=_http(400)),
    Row(name="401 for ever", fault=_http(401)),
    Row(name="403 for ever", fault=_http(403)),
    Row(name="404 for ever", fault=_http(404)),
    Row(name="dropped before headers, once", fault=Fault(kind="disconnect", where="before")),
    Row(name="dropped in mid-stream, once", fault=Fault(kind="disconnect", where="middle")),
    Row(name="dropped in mid-stream, for ever", fault=Fault(kind="disconnect", where="middle", times=FOR_EVER)),
    Row(name="an error in the stream, once", fault=Fault(kind="event")),
    Row(name="garbage, once", fault=Fault(kind="garbage")),
    Row(name="overflow, once", fault=Fault(kind="overflow")),
    Row(name="overflow, for ever", fault=Fault(kind="overflow", times=FOR_EVER)),
    Row(name="45 s of silence before headers", fault=Fault(kind="stall", where="before", seconds=45)),
    Row(name="45 s of silence in mid-stream", fault=Fault(kind="stall", where="middle", seconds=45)),
    Row(
        name="a command of 130 s, as a question that waits",
        then=shell(shlex.join(_WAIT)),
        gate=_WAIT,
    ),
    Row(name="silence before headers, once", fault=Fault(kind="stall", where="before", seconds=3600), slow=True),
    Row(name="silence in mid-stream, once", fault=Fault(kind="stall", where="middle", seconds=3600), slow=True),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What came of a row."""

    row: str
    verdict: str
    requests: int
    seconds: float
    code: int | None
    retries: int
    reason: str


async def meet(row: Row, processes: Processes, folder: Path, path: str) -> Cell:
    """Run the agent through one fault, to its end."""
    order = replace(first_order(folder), session_id=str(uuid.uuid4()), gates=(row.gate,) if row.gate else ())
    await anyio.run_process(["git", "init", "-q", str(order.workspace)])
    script = Script("row", (turn(write("a.txt", "a")), turn(row.then, fault=row.fault), turn(say("done"))))
    begun = time.monotonic()
    with ModelServer([script]) as model:
        env = {"PATH": path, "TMPDIR": str(folder), **model.environment}
        async with live(processes, Claude(BUILT_IN["claude"]), order, folder / "spool", env) as session:
            ending = await session.turn()
            seconds = time.monotonic() - begun
            status = await session.leave()
        return Cell(
            row=row.name,
            verdict=str(ending.kind) + (_work(order, session) if ending.kind is EndingKind.OK else ""),
            requests=sum(request.turn == 1 for request in model.of("row")),
            seconds=seconds,
            code=status.code,
            retries=len(session.of("retry")),
            reason=ending.reason,
        )


def _work(order: Order, session: Live) -> str:
    """A success without the work is none."""
    ended = [call.data["status"] for call in session.of("tool_call") if call.data["status"] != "started"]
    return "" if (order.workspace / "a.txt").exists() and ended == ["ok", "ok"] else ", work missing"


async def table(rows: Sequence[Row], jobs: int, environ: Mapping[str, str]) -> list[Cell]:
    """All rows, some at once."""
    cells: dict[str, Cell] = {}
    spools, limit = Spools(SystemClock()), anyio.CapacityLimiter(jobs)
    await spools.open()

    async def one(row: Row, top: Path) -> None:
        async with limit:
            cells[row.name] = await meet(row, spools, top / uuid.uuid4().hex[:6], environ["PATH"])
            sys.stderr.write(f"{len(cells)}/{len(rows)} {row.name}\n")

    with tempfile.TemporaryDirectory(prefix="faults-") as top:
        async with anyio.create_task_group() as group:
            for row in rows:
                group.start_soon(one, row, Path(top))
    await spools.close()
    return [cells[row.name] for row in rows]


def markdown(cells: Sequence[Cell]) -> str:
    """The table, for people."""
    head = "| fault at the second request | verdict | its requests | retries told | seconds | exit | reason |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {one.row} | {one.verdict} | {one.requests} | {one.retries} | {one.seconds:.1f} | {one.code} | {one.reason} |"
        for one in cells
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="claude-faults", description="The real Claude Code against every fault.")
    parser.add_argument("--program", type=Path, help="the folder that has claude; default: PATH")
    parser.add_argument("--jobs", type=int, default=4, help="rows at once")
    parser.add_argument("--slow", action="store_true", help="also the rows that wait for the agent's own limits")
    parser.add_argument("names", nargs="*", help="only rows whose name contains one of these")
    given = parser.parse_args()
    rows = [row for row in ROWS if given.slow or not row.slow]
    if given.names:
        rows = [row for row in ROWS if any(name in row.name for name in given.names)]
    path = os.environ["PATH"] if given.program is None else f"{given.program.resolve()}{os.pathsep}{os.environ['PATH']}"
    cells = anyio.run(table, rows, given.jobs, {"PATH": path})
    sys.stdout.write(markdown(cells))


if __name__ == "__main__":
    main()
