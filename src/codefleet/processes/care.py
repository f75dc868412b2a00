"""Looks after the guard of a child: a dead one is replaced, a stopped one woken, and the child's end is never missed."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import anyio

from codefleet.ports import ChildState, ChildStatus, Clock
from codefleet.processes.guard import kernel
from codefleet.processes.guards import Guards
from codefleet.processes.hints import Held, Hint
from codefleet.processes.spool import Reading

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between looks where no hint comes."""
SOON = 0.05
SETTLED = 2.0
"""Seconds that a guard must have lived for to count as one that works."""


class Care:
    def __init__(self, spool: Path, hint: Hint, guards: Guards, clock: Clock, patience: float) -> None:
        self._spool, self._hint, self._guards, self._clock = spool, hint, guards, clock
        self._patience = patience
        self._guard = Held(hint)
        self._child = Held(hint)
        self._asked = 0
        self._next = self._since = self._stopped = clock.monotonic()
        self._woken = False

    async def attend(self, reading: Reading, *, urgent: bool = False) -> float:
        """Do what its guard needs; how many seconds may pass until the next look."""
        now = self._clock.monotonic()
        if reading.here:
            self._child.hold(reading.status.pid, reading.child_start)
        if not reading.guard_lives():
            return await self._summon(now)
        if self._guard.hold(reading.status.guard, reading.guard_start):
            self._since = now
            self._next = now if self._asked <= 1 else self._next  # the first death is made good at once
        if now - self._since > SETTLED:
            self._asked = 0
        self._wake(reading, now, urgent=urgent)
        return LOOK if self._guard.fd >= 0 else SOON

    async def see_off(self, reading: Reading) -> None:
        """Wait for a guard that has said its last word; it needs no more than a write to the disk."""
        with anyio.move_on_after(self._patience):
            while reading.guard_lives():
                change = self._hint.next()
                self._guard.hold(reading.status.guard, reading.guard_start)
                await self._hint.wait(change, SOON)

    async def end_without_spool(self) -> ChildStatus:
        """Somebody removed the spool: its guard can still be told to end everything, but not say how that went."""
        while not self._guard.ended:
            change = self._hint.next()
            signal.pidfd_send_signal(self._guard.fd, signal.SIGTERM)
            await self._hint.wait(change, LOOK)
        self.let_go()
        return ChildStatus(state=ChildState.DONE, ended_by="stop")

    def let_go(self) -> None:
        self._guard.drop()
        self._child.drop()

    async def _summon(self, now: float) -> float:
        """Have a guard come, less and less often if none stays."""
        if now >= self._next:
            self._asked += 1
            self._next = now + min(0.05 * 2 ** (self._asked - 1), 5.0)
            if self._asked in {4, 8}:
                log.warning("guards of %s do not stay; see guard.log there", self._spool)
            if self._asked % 7 == 0:  # after 3 s
                await self._guards.replace()
            await self._guards.ask(self._spool, self._child.fd)
        return max(self._next - now, 0.01)

    def _wake(self, reading: Reading, now: float, *, urgent: bool) -> None:
        """A guard that was stopped is continued; one that stays stopped makes room for another."""
        pid, start = reading.status.guard, reading.guard_start
        if kernel.state_of(pid, start) not in {"T", "t"}:
            self._stopped, self._woken = now, False
        elif now - self._stopped > self._patience or (urgent and not self._woken):
            kernel.send(pid, start, signal.SIGKILL if self._woken else signal.SIGCONT)
            self._stopped, self._woken = now, True
