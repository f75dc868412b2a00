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
SEEN_OFF = 5.0
SETTLED = 2.0
"""Seconds that a guard must have lived for to count as one that works."""


class Care:
    """What the engine does for one child's guard. It goes by the spool, and by the guard that it asked for itself."""

    def __init__(self, spool: Path, hint: Hint, guards: Guards, clock: Clock, patience: float) -> None:
        self._spool, self._hint, self._guards, self._clock = spool, hint, guards, clock
        self._patience = patience
        self._pause = min(LOOK, patience)
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
        if self._guard.who != (reading.status.guard, reading.guard_start) and reading.guard_lives():
            self._meet(reading.status.guard, reading.guard_start, now)
        if self._guard.ended:
            return await self._summon(now)
        if now - self._since > SETTLED:
            self._asked = 0
        self._wake(now, urgent=urgent)
        return self._pause

    def _meet(self, pid: int, start: int, now: float) -> None:
        self._guard.hold(pid, start)
        self._since = now

    async def _summon(self, now: float) -> float:
        """Have a guard come: the first two at once, then less and less often if none stays."""
        if now < self._next:
            return self._next - now
        self._asked += 1
        self._next = now + (min(0.05 * 2 ** (self._asked - 2), 5.0) if self._asked > 1 else 0)
        if self._asked in {4, 8}:
            log.warning("guards_do_not_stay", extra={"spool": str(self._spool), "see": "guard.log"})
        if pid := await self._guards.ask(self._spool, self._child.fd):
            self._meet(pid, kernel.start_of(pid), now)
        return self._pause if not self._guard.ended else SOON

    def _wake(self, now: float, *, urgent: bool) -> None:
        """A guard that was stopped is continued; one that stays stopped makes room for another."""
        pid, start = self._guard.who
        if kernel.state_of(pid, start) not in {"T", "t"}:
            self._stopped, self._woken = now, False
        elif now - self._stopped > self._patience or (urgent and not self._woken):
            kernel.send(pid, start, signal.SIGKILL if self._woken else signal.SIGCONT)
            self._stopped, self._woken = now, True

    async def see_off(self, reading: Reading) -> None:
        """Wait for a guard that has said its last word; it needs no more than a write to the disk. One that was stopped
        just then is continued."""
        if reading.guard_lives():
            self._guard.hold(reading.status.guard, reading.guard_start)
        with anyio.move_on_after(SEEN_OFF):
            while not self._guard.ended:
                await self._hint.wait(self._hint.next(), SOON)
                if kernel.state_of(*self._guard.who) in {"T", "t"}:
                    kernel.send(*self._guard.who, signal.SIGCONT)

    async def end_without_spool(self) -> ChildStatus:
        """Somebody removed the spool: its guard can still be told to end everything, but not say how that went."""
        while not self._guard.ended:
            kernel.send(*self._guard.who, signal.SIGTERM)
            await self._hint.wait(self._hint.next(), LOOK)
        return ChildStatus(state=ChildState.DONE, ended_by="stop")

    def let_go(self) -> None:
        """Hold nothing any more."""
        self._guard.drop()
        self._child.drop()
