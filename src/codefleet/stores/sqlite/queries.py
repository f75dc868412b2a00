"""The named statements of `queries.sql`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import apsw

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _load() -> Mapping[str, str]:
    text = resources.files(__package__).joinpath("queries.sql").read_text()
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


SQL = _load()


def run(db: apsw.Connection, name: str, *bound: Any) -> None:
    """Execute a statement that answers nothing."""
    db.execute(SQL[name], bound)


def rows(db: apsw.Connection, name: str, *bound: Any) -> list[Any]:
    """All rows of a named statement."""
    return db.execute(SQL[name], bound).fetchall()


def row(db: apsw.Connection, name: str, *bound: Any) -> Any:
    """The first row, or None."""
    rows = db.execute(SQL[name], bound)
    found = rows.fetchone()
    rows.close()
    return found


def column(db: apsw.Connection, name: str, *bound: Any) -> list[Any]:
    """The only column of all rows."""
    return [value for (value,) in db.execute(SQL[name], bound).fetchall()]


def value(db: apsw.Connection, name: str, *bound: Any) -> Any:
    """The only column of the first row, or None."""
    found = row(db, name, *bound)
    return None if found is None else found[0]


def cursor(db: apsw.Connection, name: str, *bound: Any) -> apsw.Cursor:
    """The rows one by one; whoever asks closes it."""
    return db.execute(SQL[name], bound)
