"""Starts children on spools and finds them again: the adapter behind `ports.Processes`."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from anyio import to_thread

from codefleet.core.errors import Failed
from codefleet.ports import ChildState, ChildStatus, Clock, Job
from codefleet.processes import child
from codefleet.processes.child import SpoolChild
from codefleet.processes.guard import kernel
from codefleet.processes.guards import Guards
from codefleet.processes.hints import Hints
from codefleet.processes.spool import lay, mend, read, void


class Spools:
    """`ports.Processes` for one event loop."""

    def __init__(self, clock: Clock, *, patience: float = 5.0, within: float = 30.0) -> None:
        self._clock = clock
        self._patience = patience
        """Seconds that a guard may be found stopped before it is continued, and then replaced."""
        self._within = within
        """Seconds in which a child must have begun; many times what the slowest machine takes."""
        self._guards = Guards()
        self._hints = Hints()
        self._children: list[SpoolChild] = []

    async def open(self) -> None:
        _require_means()
        self._hints.open()
        await self._guards.open()

    async def close(self) -> None:
        for held in self._children:
            held.forget()
        self._children.clear()
        self._hints.close()
        await self._guards.close()

    async def start(self, spool: Path, job: Job) -> SpoolChild:
        await to_thread.run_sync(lay, spool, job)
        new = self._child(spool)
        await new.begin(self._within)
        return new

    async def adopt(self, spool: Path) -> SpoolChild | None:
        while read(spool).status.state is ChildState.ABSENT:
            if await to_thread.run_sync(void, spool):
                return None
            await anyio.sleep(0.01)  # its guard is just beginning
        found = self._child(spool)
        await to_thread.run_sync(mend, spool)
        await found.look_after()
        return found

    def peek(self, spool: Path) -> ChildStatus:
        return child.peek(spool)

    def _child(self, spool: Path) -> SpoolChild:
        new = SpoolChild(spool, self._hints, self._guards, self._clock, self._patience)
        self._children = [*(held for held in self._children if not held.forgotten), new]
        return new


def _require_means() -> None:
    """All that is promised of children rests on them."""
    if kernel.PORTABLE:
        _require_ps()
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        raise Failed(
            "this system has no process descriptors, without which no child can be kept safely",
            hint="agents run on Linux 5.3 or later; in a container, its security profile must allow pidfd_open",
        ) from None


def _require_ps() -> None:
    """What is promised elsewhere rests on `ps`; see `guard.portable` for what is not."""
    try:
        kernel.here()
    except OSError as error:
        raise Failed(
            f"the processes of this system can not be seen: {error}",
            hint="`ps -A -o pid,ppid,pgid,state,lstart` must work, also for agents' guards",
        ) from None
