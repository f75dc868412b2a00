"""Who writes: a thread that commits together what many callers ask for, or the caller itself when it is alone.

A thread costs a caller four wake-ups, about as much as a sync. So a command that nobody joins within its turn of the
event loop is committed right there, if nobody else is writing. When that takes long (a busy disk, another process),
commands go to the thread for a while, so that the event loop is held up once and not again and again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import apsw

from codefleet.core.errors import StoreUnavailable
from codefleet.stores.sqlite.pen import Outcome, Pen, Terms
from codefleet.stores.sqlite.transaction import Transaction

T = TypeVar("T")

#: Seconds of a commit on the event loop that are too long, and for how many seconds there is none after one.
LONG = 0.004
PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class _Asked:
    command: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]


class _Signal(Enum):
    LOOK = "look"
    """There is something to tidy up."""
    END = "end"


class Writer:
    """Owns the writing connection. `do` belongs to the event loop that made it."""

    def __init__(self, db: apsw.Connection, terms: Terms) -> None:
        self._pen = Pen(db, terms)
        self._options = terms.options
        self._turn = threading.Lock()
        """Held by whoever holds the pen."""
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Asked | _Signal] = SimpleQueue()
        self._gate = threading.Lock()
        """Held while a command is accepted."""
        self._lone: _Asked | None = None
        self._not_before = 0.0
        self._untidy = True
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="codefleet-writer", daemon=True)
        self._thread.start()

    async def do(self, command: Callable[[Transaction], T]) -> T:
        """Run a command in a transaction; back when it is durable, with what it returned or raised."""
        asked = _Asked(command, self._loop.create_future())
        outcome = await self._alone(asked) if self._accept(asked) else None
        if outcome is None:
            return cast("T", await asked.answer)
        if outcome.error is not None:
            raise outcome.error
        return cast("T", outcome.value)

    def lend(self) -> apsw.Connection | None:
        """The writing connection for a short read, if nobody writes: its cache outlives our own commits, that of
        another connection does not. To be given back at once, with no cursor open."""
        return self._pen.db if self._turn.acquire(blocking=False) else None

    def take_back(self) -> None:
        self._turn.release()

    def close(self) -> None:
        """Finish what was accepted, and end. Blocks."""
        with self._gate:
            self._ended = True
            self._join()
            self._queue.put(_Signal.END)
        self._thread.join()
        with self._turn:
            """Nobody writes any more."""

    # -------------------------------------------------------------------------------------- on the event loop

    def _accept(self, asked: _Asked) -> bool:
        """Take a command; whether it seems to be alone."""
        with self._gate:
            if self._ended:
                raise _closed()
            if self._lone is None and self._is_quiet():
                self._lone = asked
                return True
            self._join()
            self._queue.put(asked)
            return False

    def _is_quiet(self) -> bool:
        return self._queue.empty() and not self._turn.locked() and time.monotonic() >= self._not_before

    def _join(self) -> None:
        """The command that seemed to be alone is not."""
        lone, self._lone = self._lone, None
        if lone is not None:
            self._queue.put(lone)

    async def _alone(self, asked: _Asked) -> Outcome | None:
        """Write here, if nobody came in this turn of the event loop; None: the thread does it."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._withdraw(asked)
            raise
        if not self._begin(asked):
            return None
        try:
            outcome = self._at_once(asked)
        finally:
            self._turn.release()
        if outcome is None:
            self._hand_over(asked)
        else:
            self._loop.call_soon(self._tidy)
        return outcome

    def _withdraw(self, asked: _Asked) -> None:
        with self._gate:
            if self._lone is asked:
                self._lone = None

    def _begin(self, asked: _Asked) -> bool:
        """Take the pen for a command that is still alone."""
        with self._gate:
            if self._lone is not asked:
                return False
            if not self._turn.acquire(blocking=False):
                self._join()
                return False
            self._lone = None
            return True

    def _at_once(self, asked: _Asked) -> Outcome | None:
        begun = time.monotonic()
        outcome = self._pen.write_at_once(asked.command)
        if time.monotonic() - begun > LONG:
            self._not_before = time.monotonic() + PAUSE
        return outcome

    def _hand_over(self, asked: _Asked) -> None:
        with self._gate:
            if self._ended:
                raise _closed()
            self._queue.put(asked)

    def _tidy(self) -> None:
        """What is done after the reply: tell others, and leave to the thread what takes longer."""
        self._pen.tell()
        if not self._untidy or self._pen.log_is_long:
            self._untidy = True
            self._queue.put(_Signal.LOOK)

    # ------------------------------------------------------------------------------------- on its own thread

    def _run(self) -> None:
        try:
            more = True
            while more:
                batch, more = self._take()
                self._write([asked for asked in batch if not asked.answer.cancelled()])
        finally:
            self._give_up()

    def _write(self, batch: Sequence[_Asked]) -> None:
        if batch:
            with self._turn:
                outcomes = self._pen.write([asked.command for asked in batch])
            self._reply([(asked.answer, outcome) for asked, outcome in zip(batch, outcomes, strict=True)])
        with self._turn:
            self._pen.shorten_log()
            self._pen.tell()

    def _take(self) -> tuple[list[_Asked], bool]:
        """The commands that wait, up to a bound, and whether others may come."""
        batch: list[_Asked] = []
        item = self._next()
        while isinstance(item, _Asked):
            batch.append(item)
            if len(batch) == self._options.batch or self._queue.empty():
                return batch, True
            item = self._queue.get()
        return batch, item is not _Signal.END

    def _next(self) -> _Asked | _Signal:
        """What comes next. While nothing does, the text index is brought up to date."""
        while self._untidy:
            try:
                return self._queue.get(timeout=self._options.idle)
            except Empty:
                with self._turn:
                    self._untidy = self._pen.index()
        item = self._queue.get()
        self._untidy = True
        return item

    def _reply(self, replies: Sequence[tuple[asyncio.Future[Any], Outcome]]) -> None:
        # A loop that has ended has nobody who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_resolve, replies)

    def _give_up(self) -> None:
        """Nobody may wait for a thread that is gone."""
        with self._gate:
            self._ended = True
        left = []
        with suppress(Empty):
            while True:
                left.append(self._queue.get_nowait())
        self._reply([(item.answer, Outcome(error=_closed())) for item in left if isinstance(item, _Asked)])


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store is not open")


def _resolve(replies: Sequence[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for answer, outcome in replies:
        if answer.done():
            continue
        if outcome.error is not None:
            answer.set_exception(outcome.error)
        else:
            answer.set_result(outcome.value)
