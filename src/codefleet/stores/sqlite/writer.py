"""The thread that writes: it commits together what many callers ask for, and answers when that is on the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import apsw

from codefleet.core.errors import CodeFleetError, Exists, Missing, SchemaMismatch, Stale, StoreUnavailable
from codefleet.stores.sqlite import commands, schema
from codefleet.stores.sqlite.connection import Errors, Options
from codefleet.stores.sqlite.transaction import Transaction

T = TypeVar("T")

#: Words are indexed so many tasks at a time: a command that comes meanwhile waits a few milliseconds.
INDEX_STEP = 100

#: What can come out of a transaction because of one command or of the whole file.
_BROKEN = (apsw.Error, CodeFleetError, ValueError, TypeError, ArithmeticError)

#: What concerns the file, so that the other commands of a batch would fail as well.
_OF_THE_FILE = (
    CodeFleetError,
    apsw.FullError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
)


@dataclass(frozen=True, slots=True)
class _Asked:
    command: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Reply:
    answer: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the writer is told by its store."""

    options: Options
    errors: Errors
    schema: int
    admit: Callable[[], None]
    """Raises when nothing may be written now."""
    stated: Callable[[], None]
    """Called on the writer's thread after each commit that stated a fact."""


class Writer:
    """Owns the writing connection. `do` belongs to the event loop that made it."""

    def __init__(self, db: apsw.Connection, terms: Terms) -> None:
        self._db = db
        self._terms = terms
        self._tx = Transaction(db)
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._seen = -1
        """The state of the file that we left behind: as long as it is that, the schema is ours."""
        self._stated = False
        self._ended = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="codefleet-writer", daemon=True)
        self._thread.start()

    async def do(self, command: Callable[[Transaction], T]) -> T:
        """Run a command in a transaction; back when it is durable, with what it returned or raised."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        with self._lock:
            if self._ended:
                raise StoreUnavailable("the store is not open")
            self._queue.put(_Asked(command, answer))
        return cast("T", await answer)

    def close(self) -> None:
        """Finish what was accepted, and end. Blocks."""
        with self._lock:
            self._ended = True
            self._queue.put(None)
        self._thread.join()

    # ------------------------------------------------------------------------------------- on its own thread

    def _run(self) -> None:
        try:
            more = True
            while more:
                batch, more = self._take()
                self._reply(self._write(batch) if batch else [])
                self._tell()
        finally:
            self._give_up()

    def _take(self) -> tuple[list[_Asked], bool]:
        """The commands that wait, up to a bound, and whether others may come."""
        batch: list[_Asked] = []
        asked = self._next()
        while asked is not None:
            batch.append(asked)
            try:
                asked = (
                    self._queue.get_nowait() if len(batch) < self._terms.options.batch else self._queue.get(timeout=0)
                )
            except Empty:
                return batch, True
        return batch, False

    def _next(self) -> _Asked | None:
        """The next command. While there is none, the text index is brought up to date."""
        while True:
            try:
                return self._queue.get(timeout=self._terms.options.idle)
            except Empty:
                if not self._index():
                    return self._queue.get()

    def _write(self, batch: Sequence[_Asked]) -> list[_Reply]:
        """Run commands in one transaction. If it breaks because of one of them, each is tried alone."""
        try:
            replies = self._transact(batch)
        except _BROKEN as error:
            self._tx.rollback()
            if len(batch) > 1 and not isinstance(error, _OF_THE_FILE):
                return [reply for asked in batch for reply in self._write([asked])]
            return [_Reply(asked.answer, error=self._terms.errors.of(error)) for asked in batch]
        self._stated |= self._tx.facts
        return replies

    def _tell(self) -> None:
        """Others hear of new facts after the callers have their replies."""
        if self._stated:
            self._stated = False
            self._terms.stated()

    def _transact(self, batch: Sequence[_Asked]) -> list[_Reply]:
        self._terms.admit()
        self._tx.begin()
        self._check_schema()
        replies = [self._attempt(asked) for asked in batch]
        self._tx.commit()
        self._seen = self._db.data_version()
        return replies

    def _check_schema(self) -> None:
        """Nothing is written into a store that a newer version has migrated meanwhile."""
        if self._db.data_version() != self._seen and schema.version(self._db) != self._terms.schema:
            raise SchemaMismatch(
                "another version of codefleet has migrated the store meanwhile",
                hint="start this process again with the newer version",
            )

    def _attempt(self, asked: _Asked) -> _Reply:
        if asked.answer.cancelled():
            return _Reply(asked.answer)
        try:
            return _Reply(asked.answer, asked.command(self._tx))
        except (Stale, Missing, Exists) as refusal:
            return _Reply(asked.answer, error=refusal)

    def _index(self) -> bool:
        """Index the words of some tasks; whether there may be more. What fails is tried again another time."""
        try:
            if not commands.unindexed(self._db):
                return False
            self._terms.admit()
            self._tx.begin()
            more = commands.index(INDEX_STEP)(self._tx)
            self._tx.commit()
        except _BROKEN:
            self._tx.rollback()
            return False
        return more

    def _reply(self, replies: list[_Reply]) -> None:
        # A loop that has ended has nobody who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_resolve, replies)

    def _give_up(self) -> None:
        """Nobody may wait for a thread that is gone."""
        with self._lock:
            self._ended = True
        left = []
        with suppress(Empty):
            while True:
                left.append(self._queue.get_nowait())
        self._reply(
            [
                _Reply(asked.answer, error=StoreUnavailable("the store was closed"))
                for asked in left
                if asked is not None
            ]
        )


def _resolve(replies: Sequence[_Reply]) -> None:
    for reply in replies:
        if reply.answer.done():
            continue
        if reply.error is not None:
            reply.answer.set_exception(reply.error)
        else:
            reply.answer.set_result(reply.value)
