"""What it takes to keep a child on a spool, beside a plain subprocess that nobody keeps.

start     from the call until the program runs
exit      from a child's death until its exit is known: its tree swept, that recorded durably, its guard gone
whole     start and exit of a program that does nothing
anew      with a guard that is a fresh interpreter each time, instead of one forked by the nursery
memory    PSS of all that is ours for one of 50 children: guard, its share of the nursery, the engine's growth
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))
from _figures import Figure, main, scratch

import codefleet
from codefleet.ports import Job, SystemClock
from codefleet.processes import spool as files
from codefleet.processes.spools import Spools

MOST_MEMORY = 3.5
LASTING, BRIEF = ("sleep", "600"), ("true",)
ANEW = """
import sys
sys.path.append(sys.argv[1])
from codefleet.processes.guard.life import guard, wake_on_signals
guard(sys.argv[2], -1, wake_on_signals())
"""
ENVIRON = {"PATH": os.environ["PATH"]}

Times = dict[str, list[float]]


def job(*argv: str) -> Job:
    return Job(argv=argv, cwd=Path("/"), env=ENVIRON)


class Round:
    """One of each, in turn, so that a busy moment meets all alike."""

    def __init__(self, spools: Spools, folder: Path) -> None:
        self.spools, self.folder = spools, folder
        self.times: Times = {}
        self._number = 0

    def _spool(self) -> Path:
        self._number += 1
        return self.folder / str(self._number)

    async def _timed(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        begun = time.perf_counter()
        await act()
        self.times.setdefault(name, []).append((time.perf_counter() - begun) * 1000)

    async def kept(self) -> None:
        child = None

        async def start() -> None:
            nonlocal child
            child = await self.spools.start(self._spool(), job(*LASTING))

        async def end() -> None:
            assert child
            os.kill(child.status().pid, 9)
            await child.wait()

        async def whole() -> None:
            await (await self.spools.start(self._spool(), job(*BRIEF))).wait()

        await self._timed("start", start)
        await self._timed("exit", end)
        await self._timed("whole", whole)

    async def plain(self) -> None:
        child: subprocess.Popen[bytes] | None = None

        async def start() -> None:
            nonlocal child
            child = spawn(self._spool(), LASTING)

        async def end() -> None:
            assert child
            child.kill()
            await ended(child)

        async def whole() -> None:
            await ended(spawn(self._spool(), BRIEF))

        await self._timed("plain start", start)
        await self._timed("plain exit", end)
        await self._timed("plain whole", whole)

    async def anew(self) -> None:
        spool = self._spool()
        guard: subprocess.Popen[bytes] | None = None

        async def start() -> None:
            nonlocal guard
            guard = fresh_guard(spool)

        await self._timed("anew start", start)
        assert guard
        os.kill(files.read(spool).status.pid, 9)
        guard.wait()


def spawn(place: Path, argv: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """A child as it is without us: its output in a file."""
    with place.open("wb") as out:
        return subprocess.Popen(argv, env=ENVIRON, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def fresh_guard(spool: Path) -> subprocess.Popen[bytes]:
    """A guard in an interpreter of its own; until its child runs."""
    files.lay(spool, job(*LASTING))
    place = str(Path(codefleet.__file__).parents[1])
    guard = subprocess.Popen([sys.executable, "-S", "-I", "-c", ANEW, place, str(spool)])
    while files.read(spool).status.state != "running":
        time.sleep(0.0002)
    return guard


async def ended(child: subprocess.Popen[bytes]) -> None:
    pidfd = os.pidfd_open(child.pid)
    await anyio.wait_readable(pidfd)
    child.wait()
    os.close(pidfd)


def pss(*pids: int) -> float:
    """Megabytes of several processes together; what they share is counted once between them."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


async def memory(spools: Spools, folder: Path, count: int) -> float:
    """Megabytes of ours for each child."""
    nursery = spools._guards._nursery  # noqa: SLF001 - nobody else may know it
    assert nursery
    before = pss(os.getpid(), nursery.process.pid)
    children = [await spools.start(folder / str(number), job(*LASTING)) for number in range(count)]
    guards = [child.status().guard for child in children]
    after = pss(os.getpid(), nursery.process.pid, *guards)
    async with anyio.create_task_group() as group:
        for child in children:
            group.start_soon(child.stop, 0)
    return (after - before) / count


def memory_anew(folder: Path, count: int) -> float:
    """Megabytes for each guard that is an interpreter of its own."""
    guards = [fresh_guard(folder / str(number)) for number in range(count)]
    each = pss(*(guard.pid for guard in guards)) / count
    for number, guard in enumerate(guards):
        os.kill(files.read(folder / str(number)).status.pid, 9)
        guard.wait()
    return each


async def run(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    spools = Spools(SystemClock())
    await spools.open()
    turns = Round(spools, folder)
    await turns.kept()
    turns.times.clear()
    for _ in range(given.rounds):
        await turns.kept()
        await turns.plain()
        await turns.anew()
    turns.times["memory"] = [await memory(spools, folder / "many", given.children)]
    turns.times["anew memory"] = [memory_anew(folder / "anew", given.children)]
    await spools.close()
    return {name: statistics.median(times) for name, times in turns.times.items()}


def measure(given: argparse.Namespace) -> list[Figure]:
    with scratch() as place:
        times = anyio.run(run, given, Path(place))
    what = "a plain subprocess"
    return [
        Figure(name="start", value=times["start"], unit="ms", floor=times["plain start"], floor_name=what),
        Figure(name="exit", value=times["exit"], unit="ms", floor=times["plain exit"], floor_name=what),
        Figure(name="whole", value=times["whole"], unit="ms", floor=times["plain whole"], floor_name=what),
        Figure(
            name="start anew",
            value=times["anew start"],
            unit="ms",
            floor=times["start"],
            floor_name="forked by the nursery",
        ),
        Figure(name="memory", value=times["memory"], unit="MB", limit=MOST_MEMORY),
        Figure(name="memory anew", value=times["anew memory"], unit="MB"),
    ]


if __name__ == "__main__":
    main("processes", measure, rounds=40, children=50)
