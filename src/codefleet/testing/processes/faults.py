"""Kills whoever keeps a child, at any instant, and tells what must be true of the child all the same."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio

from codefleet.ports import Child, ChildState, Job
from codefleet.processes import spool as files
from codefleet.processes.spools import Spools
from codefleet.testing.processes.children import alive, environment, kill, printed, shell

LINES = 12
CODE = 7
_SCRIPT = f"""
echo started >> "$NOTES"
(setsid sh -c 'trap "" IGNORED INT HUP; echo $$ >> "$NOTES.daemons"; exec sleep 600' &)
i=0
while [ $i -lt {LINES} ]; do echo "line $i"; i=$((i+1)); sleep 0.01; done
exit {CODE}
"""


@dataclass(frozen=True)
class Witness:
    """A child that notes each time it is started, prints, leaves a daemon behind and ends with `CODE`."""

    spool: Path

    def job(self, *, stubborn: bool = False) -> Job:
        """The daemon has left the session; a stubborn one has to be killed."""
        script = _SCRIPT.replace("IGNORED", "TERM" if stubborn else "")
        return shell(script, self.spool.parent, env=environment(NOTES=f"{self.spool}.notes"))

    def starts(self) -> int:
        return len(_words(f"{self.spool}.notes"))

    def daemons(self) -> list[int]:
        return [int(pid) for pid in _words(f"{self.spool}.notes.daemons")]

    async def testify(self, child: Child, *, killed: bool = False, lost: bool = False) -> None:
        """Started once, all printed, ended as it did, nothing left. `killed`: it was itself a victim; `lost`: there
        may have been nobody to hear how it ended."""
        status = await child.wait()
        assert status.state is ChildState.DONE
        assert self.starts() <= 1
        assert not [pid for pid in self.daemons() if alive(pid)]
        if not killed:
            assert self.starts() == 1
            assert await printed(child) == [b"line %d" % number for number in range(LINES)]
        assert status.code in {CODE, *([None] if lost else []), *([-9] if killed else [])}


def _words(path: str) -> list[str]:
    return Path(path).read_text().split() if Path(path).exists() else []


def guards(spools: Iterable[Path]) -> list[int]:
    """The guards that keep these spools now."""
    readings = [files.read(spool) for spool in spools]
    return [reading.status.guard for reading in readings if reading.guard_lives()]


def children(spools: Iterable[Path]) -> list[int]:
    """The children that run on these spools now."""
    readings = [files.read(spool) for spool in spools]
    return [reading.status.pid for reading in readings if reading.child_lives()]


def nurseries(spools: Spools) -> list[int]:
    """The process that these spools get their guards from."""
    nursery = spools._guards._nursery  # noqa: SLF001 - nobody else may know it
    return [nursery.process.pid] if nursery else []


async def kill_at_random(victims: Callable[[], list[int]], times: int, pause: float) -> None:
    """Kill one of the victims that there are, again and again, with pauses up to so many seconds."""
    for _ in range(times):
        await anyio.sleep(random.uniform(0, pause))  # noqa: S311 - no secret
        if found := victims():
            kill(random.choice(found))  # noqa: S311 - likewise


@dataclass(frozen=True)
class Owner:
    """Another process that starts a witness on each spool and waits for them, as an engine does; to be killed."""

    process: subprocess.Popen[bytes]

    @classmethod
    def of(cls, spools: Iterable[Path]) -> Owner:
        """An owner that is about to start them."""
        program = [sys.executable, "-m", "codefleet.testing.processes.owner", *map(str, spools)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        return cls(process)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def nursery_of(owner: Owner) -> list[int]:
    """The nursery of an owner: its only child."""
    listed = Path(f"/proc/{owner.process.pid}/task/{owner.process.pid}/children")
    return [int(pid) for pid in _words(str(listed))]
