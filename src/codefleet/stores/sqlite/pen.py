"""The writing connection: runs commands in one transaction, durable when it returns. One thread at a time holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import apsw

from codefleet.core.errors import CodeFleetError, Exists, Missing, SchemaMismatch, Stale
from codefleet.stores.sqlite import commands, schema
from codefleet.stores.sqlite.connection import Errors, Options, Patience
from codefleet.stores.sqlite.transaction import Transaction

Command = Callable[[Transaction], Any]

#: Words are indexed so many tasks at a time: a command that comes meanwhile waits a few milliseconds.
INDEX_STEP = 100

#: Pages in the log from which on they are brought into the file.
LONG_LOG = 2000

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the pen is told by its store."""

    options: Options
    errors: Errors
    schema: int
    admit: Callable[[], None]
    """Raises when nothing may be written now."""
    stated: Callable[[], None]
    """Called after each commit that stated a fact."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command returned, or why it did not."""

    value: Any = None
    error: Exception | None = None


class Pen:
    def __init__(self, db: apsw.Connection, terms: Terms) -> None:
        self.db = db
        self._terms = terms
        self._tx = Transaction(db)
        self._patience = Patience(terms.options.busy)
        self._seen = -1
        """The state of the file that we left behind: as long as it is that, nobody else has written."""
        self._stated = False
        self._log = 0
        db.set_busy_handler(self._patience)
        db.set_wal_hook(self._grown)

    def _grown(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._log = pages
        return apsw.SQLITE_OK

    @property
    def log_is_long(self) -> bool:
        return self._log >= LONG_LOG

    def shorten_log(self) -> None:
        """Bring the log into the file, as far as readers allow. What fails is tried again after the next commit."""
        if self.log_is_long:
            with suppress(apsw.Error):
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._log = 0

    def write(self, batch: Sequence[Command]) -> list[Outcome]:
        """Run commands in one transaction. If it breaks because of one of them, each is tried alone."""
        try:
            return self._transact(batch)
        except _BROKEN as error:
            self._tx.rollback()
            if len(batch) > 1 and not isinstance(error, _OF_THE_FILE):
                return [outcome for command in batch for outcome in self.write([command])]
            return [Outcome(error=self._terms.errors.of(error)) for _ in batch]

    def write_at_once(self, command: Command) -> Outcome | None:
        """As `write`, but None instead of waiting for another process."""
        self._patience.seconds, patience = 0.0, self._patience.seconds
        try:
            [outcome] = self._transact([command])
        except apsw.BusyError:
            self._tx.rollback()
            return None
        except _BROKEN as error:
            self._tx.rollback()
            return Outcome(error=self._terms.errors.of(error))
        finally:
            self._patience.seconds = patience
        return outcome

    def _transact(self, batch: Sequence[Command]) -> list[Outcome]:
        self._terms.admit()
        self._tx.begin()
        self._look_around()
        outcomes = [self._attempt(command) for command in batch]
        self._tx.commit()
        self._seen = self.db.data_version()
        self._stated |= self._tx.facts
        return outcomes

    def _look_around(self) -> None:
        """Others may have written meanwhile; nothing is written into a store that a newer version has migrated."""
        if self.db.data_version() == self._seen:
            return
        self._tx.others_wrote()
        if schema.version(self.db) != self._terms.schema:
            raise SchemaMismatch(
                "another version of codefleet has migrated the store meanwhile",
                hint="start this process again with the newer version",
            )

    def _attempt(self, command: Command) -> Outcome:
        try:
            return Outcome(command(self._tx))
        except (Stale, Missing, Exists) as refusal:
            return Outcome(error=refusal)

    def tell(self) -> None:
        """Let others hear of new facts, once the callers have their replies."""
        if self._stated:
            self._stated = False
            self._terms.stated()

    def index(self) -> bool:
        """Index the words of some tasks; whether there may be more. What fails is tried again another time."""
        try:
            if not commands.unindexed(self.db):
                return False
            self._terms.admit()
            self._tx.begin()
            more = commands.index(INDEX_STEP)(self._tx)
            self._tx.commit()
        except _BROKEN:
            self._tx.rollback()
            return False
        return more
