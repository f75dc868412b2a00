"""How long it takes from one task to the next, beside what git and the process alone take.

chain  20 tasks of which each builds on the one before, each in a worktree of its own
wide   100 tasks that need nothing of one another, 8 at a time
own    our own time in a hop: what is spent neither in git nor in the agent
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))
import _fleet
from _figures import Figure, main, scratch
from _watch import Watch

AGENT = 'echo done > "file-$CODEFLEET_TASK_ID"'
MOST_CHAIN, MOST_WIDE, MOST_OWN = 1.5, 2.0, 5.0
ONE_AT_A_TIME = threading.Lock()
"""Two `git worktree add` at once in one repository fail now and then."""


def floor_task(repo: Path, root: Path, key: str, base: str) -> str:
    """What any fleet must do for one task: a worktree, the agent's process, a commit."""
    place = root / key
    with ONE_AT_A_TIME:
        _fleet.git(repo, "worktree", "add", "-q", "-b", f"floor/{key}", str(place), base)
    subprocess.run(["sh", "-c", AGENT], cwd=place, check=True, env={**os.environ, "CODEFLEET_TASK_ID": key})
    _fleet.git(place, "add", "-A")
    _fleet.git(place, "commit", "-q", "-m", key)
    return f"floor/{key}"


def floor_chain(folder: Path, length: int) -> float:
    repo = _fleet.repository(folder / "repo")
    begun, base = time.perf_counter(), "main"
    for number in range(length):
        base = floor_task(repo, folder / "trees", f"k{number}", base)
    return time.perf_counter() - begun


def floor_wide(folder: Path, count: int, width: int) -> float:
    repo = _fleet.repository(folder / "repo")
    begun = time.perf_counter()
    with ThreadPoolExecutor(width) as threads:
        list(threads.map(lambda n: floor_task(repo, folder / "trees", f"k{n}", "main"), range(count)))
    return time.perf_counter() - begun


async def _run(folder: Path, slots: int, length: int, *, linked: bool) -> float:
    """Seconds from the first claim to the last completion, by the engine's own facts."""
    async with _fleet.fleet(folder) as fleet:
        keys = await (_fleet.chain if linked else _fleet.loose)(fleet, length)
        async with _fleet.engine(fleet, slots) as engine:
            with anyio.fail_after(600):
                well = await engine.run()
        claimed = await _fleet.facts(fleet, "task_assigned", keys)
        done = await _fleet.facts(fleet, "task_completed", keys)
        if not well or len(done) < length:
            raise SystemExit(f"only {len(done)} of {length} tasks were completed")
        return (max(fact.at for fact in done.values()) - min(fact.at for fact in claimed.values())) / 1000


async def _own(folder: Path, length: int) -> dict[str, float]:
    """Median milliseconds of our own in a hop, and how much of them is the store's."""
    watch = Watch()
    async with _fleet.fleet(folder) as fleet:
        await _fleet.chain(fleet, length)
        async with _fleet.engine(fleet, 1, wrap=watch.over) as engine:
            with anyio.fail_after(600):
                await engine.run()
    claimed = [call.ended for call in watch.calls if "task_assigned" in call.facts]
    asked = [call.begun for call in watch.calls if (call.port, call.name) == ("processes", "start")]
    seen = [call.ended for call in watch.calls if (call.port, call.name) == ("child", "lines")]
    recorded = [call.ended for call in watch.calls if "run_reported" in call.facts]
    return {
        **_between("out", watch, claimed, asked),
        **_between("back", watch, seen, recorded),
    }


def _between(name: str, watch: Watch, begun: list[float], ended: list[float]) -> dict[str, float]:
    """Git's time is not ours; the first hop warms up."""
    pairs = list(zip(begun, ended, strict=True))[1:]
    own = [end - begin - watch.spent("workspaces", begin, end) for begin, end in pairs]
    store = [watch.spent("store", begin, end) for begin, end in pairs]
    return {name: statistics.median(own) * 1000, f"{name}_store": statistics.median(store) * 1000}


def measure(given: argparse.Namespace) -> list[Figure]:
    best: dict[str, float] = {}

    def keep(name: str, seconds: float) -> None:
        print(f"{name}: {seconds * 1000:.0f} ms", file=sys.stderr)
        best[name] = min(seconds, best.get(name, seconds))

    for _ in range(given.rounds):
        with scratch() as place:
            keep("floor_chain", floor_chain(Path(place), given.chain))
        with scratch() as place:
            keep("chain", anyio.run(lambda: _run(Path(place), 1, given.chain, linked=True)))
        with scratch() as place:
            keep("floor_wide", floor_wide(Path(place), given.wide, 8))
        with scratch() as place:
            keep("wide", anyio.run(lambda: _run(Path(place), 8, given.wide, linked=False)))
    with scratch() as place:
        own = anyio.run(lambda: _own(Path(place), given.chain))
    what = "git worktree add + spawn + git commit"
    return [
        Figure(
            name=f"chain of {given.chain}, a task",
            value=best["chain"] / given.chain * 1000,
            floor=best["floor_chain"] / given.chain * 1000,
            unit="ms",
            floor_name=what,
            limit=MOST_CHAIN,
        ),
        Figure(
            name=f"{given.wide} tasks, 8 wide, a task",
            value=best["wide"] / given.wide * 1000,
            floor=best["floor_wide"] / given.wide * 1000,
            unit="ms",
            floor_name=what,
            limit=MOST_WIDE,
        ),
        Figure(name="own time, claim to guard asked", value=own["out"], unit="ms", limit=MOST_OWN),
        Figure(name="own time, exit seen to recorded", value=own["back"], unit="ms", limit=MOST_OWN),
        Figure(name="of that, in the store", value=own["back_store"], unit="ms"),
    ]


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main("hop", measure, rounds=3, chain=20, wide=100)
