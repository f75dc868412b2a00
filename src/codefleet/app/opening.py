"""Opening the fleet of a home."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from codefleet.app import homes
from codefleet.app.fleet import Fleet
from codefleet.core.layout import Home
from codefleet.ports import Clock, Store, SystemClock


@asynccontextmanager
async def open_fleet(
    home: Home,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    flags: Mapping[str, str] | None = None,
    create: bool = True,
    backlog: bool = True,
) -> AsyncIterator[Fleet]:
    """The fleet of a home. Without `create` a home that is not there reads as an empty one and stays away; without
    `backlog` its store is not opened, whatever its condition: settings are all that is asked for."""
    clock = SystemClock()
    missing = backlog and not create and not homes.exists(home)
    if create:
        homes.make(home)
    store = _store(home, clock, memory=missing or not backlog)
    await store.open()
    try:
        yield Fleet(home, store, environ, cwd, flags or {}, clock, missing=missing)
    finally:
        await store.close()


def _store(home: Home, clock: Clock, *, memory: bool) -> Store:
    if memory:
        from codefleet.stores.memory import MemoryStore

        return MemoryStore(clock)
    from codefleet.stores.sqlite import SqliteStore

    return SqliteStore(home.database, wake=home.wake, backups=home.backups, clock=clock)
