"""What an engine costs while it has nothing to do, and what each running agent adds (without the agent itself).

Memory is PSS: pages that several processes share are counted once between them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))
import _fleet
from _figures import Figure, clean_environ, main, scratch

MOST_MEMORY, MOST_CPU, MOST_AGENT = 50.0, 0.5, 3.5
SETTLE = 6.0
TICKS = os.sysconf("SC_CLK_TCK")


def _fields(process: Path) -> list[str]:
    return (process / "stat").read_text().rpartition(")")[2].split()


def _children(root: int) -> set[int]:
    """A process and all that came from it, as far as they still hang together."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_fields(entry)[1])
            except OSError:
                continue
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _marked(marker: bytes) -> set[int]:
    """Processes that were started for this home, wherever they hang."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def pss(pids: set[int]) -> float:
    """Megabytes of several processes together."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1])
    return total / 1024


def cpu(pids: set[int]) -> float:
    """Seconds that several processes have used so far, the children that they waited for included."""
    total = 0
    for pid in pids:
        try:
            total += sum(int(field) for field in _fields(Path(f"/proc/{pid}"))[11:15])
        except OSError:
            continue
    return total / TICKS


@contextmanager
def started(environ: Mapping[str, str], cwd: Path, slots: int) -> Iterator[subprocess.Popen[bytes]]:
    """A real engine, and its end."""
    program = str(Path(sys.executable).with_name("codefleet"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([program, "start", "-n", str(slots)], env=environ, cwd=cwd, **quiet)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


async def _backlog(folder: Path, count: int) -> None:
    async with _fleet.fleet(folder) as fleet:
        await _fleet.loose(fleet, count, agent="sleeper")


def _ours(engine: int, marker: bytes) -> set[int]:
    """The engine, its nursery and all guards: everything but the agents."""
    return {pid for pid in _children(engine) | _marked(marker) if _program(pid) not in {"sleep", "sh", "git", ""}}


def _agents(marker: bytes) -> int:
    return sum(_program(pid) == "sleep" for pid in _marked(marker))


def measure(given: argparse.Namespace) -> list[Figure]:
    with scratch() as place:
        folder = Path(place)
        environ = {**clean_environ(folder), "CODEFLEET_TEST": place}
        marker = f"CODEFLEET_TEST={place}".encode() + b"\0"
        anyio.run(_backlog, folder, 0)
        with started(environ, folder / "repo", 3) as engine:
            time.sleep(SETTLE)
            before, begun = cpu(_children(engine.pid)), time.monotonic()
            time.sleep(given.seconds)
            used = (cpu(_children(engine.pid)) - before) / (time.monotonic() - begun) * 60
            idle = pss(_ours(engine.pid, marker))
    with scratch() as place:
        folder = Path(place)
        environ = {**clean_environ(folder), "CODEFLEET_TEST": place}
        marker = f"CODEFLEET_TEST={place}".encode() + b"\0"
        anyio.run(_backlog, folder, given.agents)
        with started(environ, folder / "repo", given.agents) as engine:
            end = time.monotonic() + 300
            while _agents(marker) < given.agents and time.monotonic() < end and engine.poll() is None:
                time.sleep(0.5)
            running = _agents(marker)
            if running < given.agents:
                raise SystemExit(f"only {running} of {given.agents} agents run (engine: {engine.poll()})")
            time.sleep(SETTLE)
            busy = pss(_ours(engine.pid, marker))
    return [
        Figure(name="idle engine with its nursery, PSS", value=idle, unit="MB", limit=MOST_MEMORY),
        Figure(name="idle engine, CPU a minute", value=used, unit="s", limit=MOST_CPU),
        Figure(
            name=f"each of {running} running agents, PSS of ours",
            value=(busy - idle) / running,
            unit="MB",
            limit=MOST_AGENT,
        ),
    ]


if __name__ == "__main__":
    main("idle", measure, seconds=60, agents=50)
