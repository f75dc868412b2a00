"""A child as the engine sees it: its guard is looked after, its output read, its input queued."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from anyio import lowlevel, to_thread

from codefleet.core.errors import Failed
from codefleet.ports import ChildState, ChildStatus, Clock, Line
from codefleet.processes import spool as files
from codefleet.processes.care import LOOK, Care
from codefleet.processes.guards import Guards
from codefleet.processes.hints import Hints
from codefleet.processes.lines import Splitter

OVER = frozenset({ChildState.DONE, ChildState.ABSENT})
UNBORN = frozenset({ChildState.STARTING, ChildState.ABSENT})


class SpoolChild:
    """`ports.Child`."""

    def __init__(self, spool: Path, hints: Hints, guards: Guards, clock: Clock, patience: float) -> None:
        self._spool = spool
        self._hints = hints
        self._hint = hints.of(spool)
        self._care = Care(spool, self._hint, guards, clock, patience)
        self._sending = anyio.Lock()
        self.forgotten = False

    @property
    def spool(self) -> Path:
        return self._spool

    def status(self) -> ChildStatus:
        return peek(self._spool)

    async def begin(self, within: float) -> None:
        """Have a guard start it, until it runs, could not be run, or has ended. If no guard comes, none ever will."""
        while True:
            with anyio.move_on_after(within):
                while await self._tend() in UNBORN:
                    pass
                return
            if await to_thread.run_sync(files.void, self._spool):
                self.forget()
                raise Failed(f"no guard came to {self._spool} within {within:.0f} s", hint="see guard.log there")

    async def _tend(self) -> ChildState:
        """Look after the guard once; waits for the next change while it has not begun."""
        change = self._hint.next()
        reading = files.read(self._spool)
        state = reading.status.state
        pause = await self._care.attend(reading) if state is not ChildState.DONE else 0.0
        if state in UNBORN:
            await self._hint.wait(change, pause)
        return state

    async def look_after(self) -> None:
        """Have a guard come if it has none."""
        reading = files.read(self._spool)
        if reading.status.state not in OVER:
            await self._care.attend(reading)

    async def wait(self) -> ChildStatus:
        while True:
            change = self._hint.next()
            reading = files.read(self._spool)
            if reading.status.state in OVER:
                return await self._over(reading)
            await self._hint.wait(change, await self._care.attend(reading))

    async def _over(self, reading: files.Reading) -> ChildStatus:
        """The last word is durable once its guard is gone; a guard whose spool was removed has none."""
        status = reading.status
        if status.state is ChildState.ABSENT:
            status = await self._care.end_without_spool()
        else:
            await self._care.see_off(reading)
        self.forget()
        return status

    async def stop(self, grace: float) -> ChildStatus:
        told = 0
        while True:
            change = self._hint.next()
            reading = files.read(self._spool)
            if reading.status.state in OVER:
                return await self._over(reading)
            pause = await self._care.attend(reading, urgent=True)
            if told != reading.status.guard or not reading.ending:
                told = reading.status.guard if files.tell(self._spool, f"stop {grace}") else 0
                pause = min(pause, 0.2)
            await self._hint.wait(change, pause)

    async def send(self, line: bytes) -> None:
        async with self._sending:
            await to_thread.run_sync(files.queue, self._spool, line)
        files.tell(self._spool, "in")

    async def lines(self, offset: int = 0) -> AsyncIterator[Line]:
        splitter = Splitter(offset)
        while True:
            change = self._hint.next_output()
            over = files.read(self._spool).status.state in OVER
            while data := files.output(self._spool, splitter.read, Splitter.PIECE):
                for line in splitter.feed(data):
                    yield line
                await lowlevel.checkpoint()
            if over:
                break
            await self._hint.wait(change, LOOK)
        for line in splitter.rest():
            yield line

    def forget(self) -> None:
        """Let go of every descriptor; the child goes on."""
        self._care.let_go()
        if not self.forgotten:
            self._hints.drop(self._hint)
        self.forgotten = True


def peek(spool: Path) -> ChildStatus:
    """What the spool says. What has plainly ended together with its guard is not shown as running; what somebody has
    asked for may begin at any moment, and is not shown as absent until an adoption has made sure."""
    reading = files.read(spool)
    if reading.status.state is ChildState.ABSENT and files.laid(spool):
        return ChildStatus(state=ChildState.STARTING)
    if reading.status.state in {ChildState.STARTING, ChildState.RUNNING} and reading.over:
        reading = files.read(spool)  # it may have ended properly just now
        if reading.status.state in {ChildState.STARTING, ChildState.RUNNING}:
            return dataclasses.replace(reading.status, state=ChildState.EXITED)
    return reading.status
