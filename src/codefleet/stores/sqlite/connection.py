"""Connections to the file, and what SQLite's errors mean to us."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import apsw

from codefleet.core.errors import CodeFleetError, Corrupt, InvalidInput, StoreUnavailable
from codefleet.stores.sqlite import disk

#: SQLite's application_id: "this file is ours".
APPLICATION = 0x436F4665


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a store treats its file. Only tests and benchmarks have a reason to change one."""

    synchronous: str = "FULL"
    vfs: str = ""
    reserve: int = 16 << 20
    """Free bytes below which nothing is written."""
    roomy: float = 0.1
    """Seconds for which it is believed that there is room."""
    busy: float = 30.0
    """Seconds to wait for another process's write."""
    batch: int = 256
    """Commands that one transaction takes at most."""
    idle: float = 0.25
    """Seconds without a command after which the text index is brought up to date."""


def connect(path: Path, options: Options, *, make: bool = True) -> apsw.Connection:
    """A connection as all of ours are. Nothing is written by it."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if make else 0)
    db = apsw.Connection(str(path), flags=flags, vfs=options.vfs or None, statementcachesize=256)
    db.set_busy_handler(Patience(options.busy))
    # Statements are compiled once and not anew for each value bound.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    db.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    return db


def tune(db: apsw.Connection, options: Options) -> None:
    """Write-ahead log, synced before a commit returns."""
    for pragma in (
        "journal_mode = wal",
        f"synchronous = {options.synchronous}",
        "wal_autocheckpoint = 2000",
        "journal_size_limit = 67108864",
        "temp_store = memory",
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()


class Patience:
    """A busy handler: tries again after a short random while, so that no process starves."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        if tries == 0:
            self._until = time.monotonic() + self.seconds
        if time.monotonic() >= self._until:
            return False
        time.sleep(random.uniform(0.0001, 0.004))  # noqa: S311 - jitter, no secret
        return True


class Errors:
    """Turns SQLite's errors into ours, with what a person can do. Used as `with errors:`."""

    def __init__(self, path: Path, newest_backup: Callable[[], Path | None]) -> None:
        self._path = path
        self._newest_backup = newest_backup

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, (apsw.Error, OSError)):
            raise self.of(error) from error

    def of(self, error: Exception) -> CodeFleetError:
        """Our error for what came out of a statement."""
        match error:
            case CodeFleetError():
                return error
            case apsw.CorruptError() | apsw.NotADBError():
                return self.corrupt(str(error))
            case apsw.FullError() | OSError(errno=errno.ENOSPC):
                return disk.no_space(self._path.parent, "SQLite could not write")
            case apsw.BusyError() | apsw.LockedError():
                return self._unavailable("another process keeps it locked", "try again; `codefleet doctor` says who")
            case OSError() | apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
                return self._unavailable(str(error), f"check owner and permissions of {self._path.parent}")
            case apsw.Error():
                return self._unavailable(str(error), "check the disk; what was under way may or may not be stored")
            case _:
                return InvalidInput(f"this can not be stored: {error}")

    def corrupt(self, what: str) -> Corrupt:
        newest = self._newest_backup()
        way = f"the newest backup is {newest}: copy it to {self._path}" if newest else "there is no backup"
        return Corrupt(
            f"the store {self._path} can not be believed: {what}",
            hint=f"stop all engines and move {self._path.name}* away, do not delete them; {way}",
        )

    def _unavailable(self, what: str, hint: str) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self._path} can not be used: {what}", hint=hint)
