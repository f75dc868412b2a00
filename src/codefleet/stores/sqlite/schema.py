"""The schema of the file: its version, and how an older one becomes today's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

import apsw

from codefleet.core.errors import SchemaMismatch
from codefleet.core.model import Instant
from codefleet.stores.sqlite.connection import APPLICATION, Errors

#: A beat that is younger stands for an engine that lives.
ALIVE = 30_000


def steps() -> Sequence[str]:
    """The scripts that lead from nothing to today's schema. The n-th leads to version n."""
    folder = resources.files(__package__).joinpath("schema")
    return [each.read_text() for each in sorted(folder.iterdir(), key=lambda each: each.name)]


def version(db: apsw.Connection) -> int:
    return int(db.pragma("user_version"))


def inspect(db: apsw.Connection, newest: int, errors: Errors) -> int:
    """The version of a file that may be used; 0: it is empty. Whatever else it is is refused, untouched."""
    found = version(db)
    if found > newest:
        raise SchemaMismatch(
            f"the store was written by a newer codefleet (schema {found}; this one knows {newest})",
            hint="install that version again; this one leaves the store as it is",
        )
    whose = db.pragma("application_id")
    if whose == APPLICATION and found:
        return found
    if whose or found or db.execute("SELECT count(*) FROM sqlite_schema").get:
        raise errors.corrupt("it is another program's file")
    return 0


def migrate(
    db: apsw.Connection, wanted: Sequence[str], errors: Errors, backup: Callable[[int], Path], now: Instant
) -> str:
    """Bring the file to the newest schema in one transaction; the backup that was made before, if any."""
    db.execute("BEGIN IMMEDIATE")
    try:
        found = inspect(db, len(wanted), errors)
        if found == len(wanted):
            return ""
        if found:
            _refuse_while_somebody_works(db, now)
        made = str(backup(found)) if found else ""
        for step in wanted[found:]:
            db.execute(step).fetchall()
        db.pragma("application_id", APPLICATION)
        db.pragma("user_version", len(wanted))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return made


def _refuse_while_somebody_works(db: apsw.Connection, now: Instant) -> None:
    beating = "SELECT id FROM record WHERE kind = 'engine' AND document ->> 'beat_at' > ?"
    alive = [str(engine) for (engine,) in db.execute(beating, (now - ALIVE,)).fetchall()]
    if alive:
        raise SchemaMismatch(
            f"an engine of an older version still works on the store: {', '.join(alive)}",
            hint="end it (Ctrl-C where it runs), then try again",
        )
