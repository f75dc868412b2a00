"""`status` at once: the same document that `Fleet.status` gives, read straight from the home's file.

It loads neither the store nor the nouns, which take ten times longer than the answer. Whatever is not as usual (another
schema, a file that is locked or damaged, a setting that counts here) is left to the store, which can say what it is.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import apsw

from codefleet.app import stored
from codefleet.core.layout import Home
from codefleet.processes.presence import FilePresence

SCHEMA = 1
"""The version of the file that is understood here."""
SILENT_MS = 120_000
STATES = "blocked pending assigned in_progress waiting verifying verified landing completed failed cancelled".split()
MOST = 500
_SETTING = re.compile(r"^\s*stale_after\s*=", re.MULTILINE)

COUNTS = "SELECT status, sum(count) FROM tally GROUP BY status"
RECORDS = "SELECT document FROM record WHERE kind = ? ORDER BY id LIMIT ?"
TASKS = """
SELECT document FROM tally CROSS JOIN task ON task.project = tally.project AND task.status = tally.status
WHERE tally.count > 0 AND tally.status IN (SELECT value FROM json_each(?)) AND task.ready = 0 ORDER BY rank, n LIMIT ?
"""


HELD = """
SELECT document FROM tally CROSS JOIN task ON task.project = tally.project AND task.status = tally.status
WHERE tally.count > 0 AND tally.status = 'pending' AND task.ready = 0 ORDER BY rank, n LIMIT ?
"""
TITLES = "SELECT id, document ->> 'title' FROM task WHERE id >= ?1 AND id < ?1 || '~' ORDER BY n DESC LIMIT ?2"


def titles(home: Path, beginning: str, limit: int = 50) -> list[tuple[str, str]]:
    """The newest tasks whose ids begin so, with their titles: what a shell offers."""
    try:
        db = apsw.Connection(str(home / "codefleet.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error:
        return []
    try:
        rows = db.execute(TITLES, (beginning, limit)).fetchall()
        return [(str(key), str(title)) for key, title in rows]
    except apsw.Error:
        return []
    finally:
        db.close()


def status(home: Path, environ: Mapping[str, str]) -> stored.Document | None:
    """The document of `status`; None when only the store can tell."""
    file = home / "codefleet.db"
    try:
        if not file.exists() or "CODEFLEET_STALE_AFTER" in environ or _is_set(home / "runtime.toml"):
            return None
    except OSError:
        return None
    try:
        db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error:
        return None
    try:
        return _read(db, home)
    except apsw.Error:
        return None
    finally:
        db.close()


def _read(db: apsw.Connection, home: Path) -> stored.Document | None:
    """All of it as it was at one moment."""
    db.execute("BEGIN").fetchall()
    found = _status(db, home) if db.pragma("user_version") == SCHEMA else None
    db.execute("COMMIT").fetchall()
    return found


def _is_set(settings: Path) -> bool:
    try:
        return bool(_SETTING.search(settings.read_text(errors="replace")))
    except FileNotFoundError:
        return False


def _status(db: apsw.Connection, home: Path) -> stored.Document:
    counted: dict[Any, Any] = dict(db.execute(COUNTS).fetchall())  # type: ignore[arg-type]  # each row is a pair
    now = time.time_ns() // 1_000_000
    presence, here = FilePresence(Home(home)), os.uname().nodename
    engines = [
        one
        for one in _records(db, "engine")
        if now - one["beat_at"] <= SILENT_MS and (one["host"] != here or presence.alive(one["id"]))
    ]
    tasks = _decoded(db.execute(TASKS, (json.dumps(stored.LOOKED_AT), MOST)))
    tasks += _decoded(db.execute(HELD, (MOST,)))
    tally = {name: int(counted.get(name, 0)) for name in STATES}
    return stored.status(tally, engines, _records(db, "agent"), _records(db, "pause"), tasks, now=now)


def _records(db: apsw.Connection, kind: str) -> list[Any]:
    return _decoded(db.execute(RECORDS, (kind, MOST)))


def _decoded(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [json.loads(document) for (document,) in rows]
