"""An engine that does nothing but own: it starts a witness on each spool named and waits for them all.

usage: python -m codefleet.testing.processes.owner SPOOL...        prints a line before it begins
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from codefleet.ports import SystemClock
from codefleet.processes.spools import Spools
from codefleet.testing.processes.faults import Witness


async def own(spools: Spools, spool: Path) -> None:
    """One child from start to end."""
    child = await spools.start(spool, Witness(spool).job())
    await child.wait()


async def main(*names: str) -> None:
    """All of them, at once."""
    spools = Spools(SystemClock())
    await spools.open()
    sys.stdout.write("here\n")
    sys.stdout.flush()
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(own, spools, Path(name))
    await spools.close()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
