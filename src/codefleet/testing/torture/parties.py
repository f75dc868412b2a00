"""Who keeps a fleet alive, found at this instant, so that it can be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codefleet.ports import ChildState
from codefleet.processes.child import peek
from codefleet.testing.torture.actor import born
from codefleet.testing.torture.world import World

PARTIES = ("engine", "guard", "agent", "gate", "git", "nursery", "add")
ALIVE = frozenset({ChildState.STARTING, ChildState.RUNNING})


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is meant, not whatever bears its number later."""

    pid: int
    born: int

    @property
    def alive(self) -> bool:
        return self.born != 0 and born(self.pid) == self.born

    def kill(self) -> bool:
        """kill -9, if it is still the one that was meant."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive:
                return False
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


def process(pid: int) -> Process:
    return Process(pid, born(pid))


def find(world: World, party: str, engine: int) -> Sequence[Process]:
    """The processes that are this party now."""
    if party == "engine":
        return [process(engine)]
    if party == "git":
        return [process(pid) for pid in _children(engine) if _name(pid) == "git"]
    if party == "nursery":
        return [process(pid) for pid in _children(engine) if b"nursery" in _argv(pid)]
    ending = {"agent": "-agent", "gate": "-gate", "guard": ""}[party]
    found = [peek(spool) for spool in _spools(world) if spool.name.endswith(ending)]
    living = [status for status in found if status.state in ALIVE]
    return [process(pid) for pid in (one.guard if party == "guard" else one.pid for one in living) if pid > 1]


def _spools(world: World) -> Iterator[Path]:
    yield from (world.home.path / "spool").glob("*/*")


def _children(pid: int) -> Sequence[int]:
    """Children of all its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        found += [int(child) for child in _read(task / "children").split()]
    return found


def _name(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/comm")).decode().strip()


def _argv(pid: int) -> bytes:
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def marked(world: World) -> Sequence[int]:
    """Every living process of this world, whatever became of its parents."""
    marker = f"CODEFLEET_TEST={world.path}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and marker in _read(entry / "environ"):
            state = _read(entry / "stat").rpartition(b")")[2].split()
            if state and state[0] not in {b"Z", b"X"}:
                found.append(int(entry.name))
    return found


def described(pid: int) -> str:
    return f"{pid} {_argv(pid).replace(bytes(1), b' ').decode(errors='replace')[:200]}"


def end(world: World) -> None:
    """Leave no process of a world that went wrong."""
    while left := marked(world):
        for pid in left:
            process(pid).kill()
