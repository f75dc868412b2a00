"""The embedded store: one SQLite file that several processes share."""

from codefleet.stores.sqlite.connection import Options
from codefleet.stores.sqlite.store import SqliteStore

__all__ = ["Options", "SqliteStore"]
