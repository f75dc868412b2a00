"""Opening the file: what is refused, what is made, what is brought up to date."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from codefleet.core.model import Instant
from codefleet.ports import StoreInfo
from codefleet.stores.sqlite import backups, disk, schema
from codefleet.stores.sqlite.connection import Errors, Options, connect, tune

#: Up to this size a file is checked whole at every open: some milliseconds.
SMALL = 2 << 20

_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store lies."""

    path: Path
    backups: Path
    options: Options
    steps: Sequence[str]

    @property
    def errors(self) -> Errors:
        return Errors(self.path, lambda: backups.newest(self.backups))

    def connect(self) -> apsw.Connection:
        """A connection to a file that was opened before."""
        db = connect(self.path, self.options, make=False)
        tune(db, self.options)
        return db

    def open(self, now: Instant) -> tuple[StoreInfo, apsw.Connection]:
        """Refuse, or make, migrate and check; then a connection for the writer. Blocks."""
        with self.errors:
            folder = self.path.parent
            folder.mkdir(parents=True, exist_ok=True)
            disk.refuse_network(folder)
            self._refuse_damaged_head()
            return self._open(now)

    def _open(self, now: Instant) -> tuple[StoreInfo, apsw.Connection]:
        log = self.path.with_name(self.path.name + "-wal")
        left = log.exists() and log.stat().st_size
        db = connect(self.path, self.options)
        with contextlib.ExitStack() as undo:
            undo.callback(db.close)
            # What a killed process left in the log is not brought into a file that is refused.
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, bool(left))
            backup = self._bring_up_to_date(db, now)
            self._check(db)
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            undo.pop_all()
        return StoreInfo(kind="sqlite", schema=len(self.steps), backup=backup), db

    def _refuse_damaged_head(self) -> None:
        try:
            with self.path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except FileNotFoundError:
            return
        if head != _MAGIC and (head or backups.newest(self.backups)):
            raise self.errors.corrupt("it is no SQLite file" if head else "it is empty")

    def _bring_up_to_date(self, db: apsw.Connection, now: Instant) -> str:
        found = schema.inspect(db, len(self.steps), self.errors)
        if found == len(self.steps):
            tune(db, self.options)
            return ""
        disk.require_space(self.path.parent, self.options.reserve)
        with alone(self.path.parent):
            tune(db, self.options)
            return schema.migrate(db, self.steps, self.errors, lambda old: self._backup(old, now), now)

    def _backup(self, old: int, now: Instant) -> Path:
        db = self.connect()
        try:
            return backups.before_migration(db, self.backups, old, now)
        finally:
            db.close()

    def _check(self, db: apsw.Connection) -> None:
        if self.path.stat().st_size <= SMALL and (found := backups.damage(db)):
            raise self.errors.corrupt(found)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder's lock: of several processes one at a time."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
