"""Copies of a store, made while others write."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw

from codefleet.core.errors import Corrupt, Failed
from codefleet.core.model import Instant
from codefleet.stores.sqlite import disk
from codefleet.stores.sqlite.connection import Options, connect

DAY = 24 * 3600 * 1000

#: How many backups of each kind are kept.
KEEP = 7


def newest(folder: Path) -> Path | None:
    """The backup that was made last."""
    found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.db")]
    return max(found)[1] if found else None


def is_due(folder: Path, now: Instant) -> bool:
    """Is the newest daily backup older than a day?"""
    dates = [path.stat().st_mtime_ns // 1_000_000 for path in folder.glob("daily-*.db")]
    return not dates or now - max(dates) >= DAY


def daily(db: apsw.Connection, folder: Path, now: Instant) -> Path:
    """Make the backup of today, and drop the oldest ones."""
    path = folder / f"daily-{_stamp(now)}.db"
    _sweep(folder, now)
    write(db, path)
    os.utime(path, (now / 1000, now / 1000))
    prune(folder, "daily-*.db")
    return path


def before_migration(db: apsw.Connection, folder: Path, schema: int, now: Instant) -> Path:
    path = folder / f"before-migration-from-{schema}-{_stamp(now)}.db"
    write(db, path)
    prune(folder, "before-migration-*.db")
    return path


def _sweep(folder: Path, now: Instant) -> None:
    """Drop what a process left that was killed while it made a backup."""
    for path in folder.glob(".*.part"):
        if now - path.stat().st_mtime_ns // 1_000_000 > DAY:
            path.unlink()


def prune(folder: Path, pattern: str) -> None:
    for path in sorted(folder.glob(pattern), key=lambda each: each.stat().st_mtime_ns)[:-KEEP]:
        path.unlink()


def write(db: apsw.Connection, to: Path) -> None:
    """A whole, checked, durable copy at `to`, or nothing there."""
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        _copy(db, part)
        _sync(part)
        part.rename(to)
        _sync(to.parent)
    except apsw.FullError as error:
        raise disk.no_space(to.parent, "the backup did not fit") from error
    except (apsw.CantOpenError, OSError) as error:
        raise Failed(f"the backup {to} could not be written: {error}", hint=f"check {to.parent}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _copy(db: apsw.Connection, part: Path) -> None:
    with suppress(FileNotFoundError):
        part.unlink()
    db.execute("VACUUM INTO ?", (str(part),))
    found = check(part)
    if found:
        raise Corrupt(f"the backup of a damaged store is worth nothing: {found}")


def check(path: Path) -> str:
    """What is wrong with a file that nobody else uses; empty: nothing was found."""
    db = connect(path, Options(), make=False)
    try:
        return damage(db)
    finally:
        db.close()


def damage(db: apsw.Connection) -> str:
    """What SQLite finds wrong in a whole store; empty: nothing."""
    try:
        [(first,), *_] = db.execute("PRAGMA quick_check(1)").fetchall()
    except apsw.CorruptError as error:
        return str(error)
    return "" if first == "ok" else str(first)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _stamp(now: Instant) -> str:
    return datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%dT%H%M%SZ")
