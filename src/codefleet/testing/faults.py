"""Bad things on purpose: a store that ends its process at a chosen call, and a disk that remembers how it was written.

`FaultyStore` wraps any store. `Fault.parse("kill:after:17")` is kill -9 of this process when the 17th call has been
done and its caller has not heard of it; `stop` freezes it (SIGSTOP), `fail` is `StoreUnavailable`; `before` does it
with the call not done. A fourth part names the calls that count: `kill:before:3:add,commit`.

`RecordingDisk` is a file system layer for SQLite. It keeps every write and sync in order, and can lay out what a disk
may hold after losing its power at any moment: what was synced, and of the rest any part.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw

from codefleet.core.errors import InvalidInput, StoreUnavailable
from codefleet.core.model import Activity, Aggregate, Engine, Fact, Instant, Lane, Status
from codefleet.ports import Filter, Held, Page, Paged, Purged, Store, StoreInfo

A = TypeVar("A", bound=Aggregate)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at which call, counted from 1."""

    kind: Literal["kill", "stop", "fail"]
    when: Literal["before", "after"]
    call: int
    of: frozenset[str] = frozenset()
    """The calls that count; none: all but `open` and `close`."""

    @classmethod
    def parse(cls, text: str) -> Fault:
        match text.split(":"):
            case [("kill" | "stop" | "fail") as kind, ("before" | "after") as when, call, *of] if call.isdecimal():
                return cls(kind, when, int(call), frozenset(",".join(of).split(",")) - {""})
        raise InvalidInput(f"{text!r} is no fault", hint="write kill|stop|fail:before|after:NUMBER[:CALL,CALL]")

    def happen(self) -> None:
        if self.kind == "fail":
            raise StoreUnavailable(f"a fault {self.when} call {self.call}")
        os.kill(os.getpid(), signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)


class FaultyStore:
    """A store that hands every call on, until its fault."""

    def __init__(self, store: Store, *faults: Fault) -> None:
        self._store = store
        self._faults = [(fault, count(1)) for fault in faults]
        self.calls: list[str] = []
        """What was called, but for `open` and `close`."""

    async def _through(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        due = [fault for fault, n in self._faults if (not fault.of or name in fault.of) and next(n) == fault.call]
        for fault in due:
            if fault.when == "before":
                fault.happen()
        done = await call()
        for fault in due:
            if fault.when == "after":
                fault.happen()
        return done

    async def open(self) -> StoreInfo:
        return await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        return await self._through("get", lambda: self._store.get(kind, ids))

    async def add(self, new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        return await self._through("add", lambda: self._store.add(new, facts))

    async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        return await self._through("commit", lambda: self._store.commit(held, new, facts))

    async def ready(self, lanes: Sequence[Lane], limit: int, skip: int = 0) -> Sequence[str]:
        return await self._through("ready", lambda: self._store.ready(lanes, limit, skip))

    async def lanes(self) -> Sequence[Lane]:
        return await self._through("lanes", self._store.lanes)

    async def waiting_on(self, task: str, after: str = "", limit: int = 500) -> Sequence[str]:
        return await self._through("waiting_on", lambda: self._store.waiting_on(task, after, limit))

    async def owned_by(self, engine: str) -> Sequence[str]:
        return await self._through("owned_by", lambda: self._store.owned_by(engine))

    async def overdue(self, now: Instant, limit: int = 500) -> Sequence[str]:
        return await self._through("overdue", lambda: self._store.overdue(now, limit))

    async def find(self, kind: type[A], where: Filter, page: Page) -> Paged[A]:
        return await self._through("find", lambda: self._store.find(kind, where, page))

    async def counts(self, project: str = "") -> Mapping[Status, int]:
        return await self._through("counts", lambda: self._store.counts(project))

    async def beat(self, engine: Engine, now: Instant) -> Instant:
        return await self._through("beat", lambda: self._store.beat(engine, now))

    async def engines(self) -> Sequence[Engine]:
        return await self._through("engines", self._store.engines)

    async def retire(self, engine: str) -> None:
        await self._through("retire", lambda: self._store.retire(engine))

    async def facts(self, after: str = "", limit: int = 1000, *, task: str = "") -> Sequence[Fact]:
        return await self._through("facts", lambda: self._store.facts(after, limit, task=task))

    async def position(self) -> str:
        return await self._through("position", self._store.position)

    async def changed(self, after: str, timeout: float) -> bool:
        return await self._through("changed", lambda: self._store.changed(after, timeout))

    async def relay(self, limit: int = 1000) -> int:
        return await self._through("relay", lambda: self._store.relay(limit))

    async def log(self, items: Sequence[Activity]) -> None:
        await self._through("log", lambda: self._store.log(items))

    async def activity(self, run: str = "", after: int = -1, limit: int = 1000) -> Sequence[Activity]:
        return await self._through("activity", lambda: self._store.activity(run, after, limit))

    async def last_activity(self, run: str) -> int:
        return await self._through("last_activity", lambda: self._store.last_activity(run))

    async def similar(self, text: str, project: str, limit: int) -> Sequence[tuple[str, float]]:
        return await self._through("similar", lambda: self._store.similar(text, project, limit))

    async def purge(self, before: Instant) -> Purged:
        return await self._through("purge", lambda: self._store.purge(before))

    async def backup(self, to: Path) -> None:
        await self._through("backup", lambda: self._store.backup(to))


# ----------------------------------------------------------------------------------------------------------- disk


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to the disk, or that somebody noted between."""

    kind: Literal["write", "truncate", "sync", "delete", "note"]
    name: str
    """The file's name; for a note its text."""
    offset: int = 0
    data: bytes = b""


@dataclass(slots=True)
class _File:
    """What a disk holds of a file: `synced` for sure, `pending` perhaps."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)
    there: bool = True
    known: bool = False
    """Its name is in its folder for sure."""


class RecordingDisk(apsw.VFS):  # type: ignore[misc,unused-ignore]
    """A file system layer of SQLite, registered under a name, that keeps all that is written through it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self.events: list[Event] = []
        self.fail: Callable[[Event], None] = _no_failure
        """Asked before each event; may raise instead."""
        self._lock = threading.Lock()

    def keep(self, event: Event) -> None:
        self.fail(event)
        with self._lock:
            self.events.append(event)

    def note(self, text: str) -> None:
        """Remember that something was known to the outside at this moment."""
        self.keep(Event("note", text))

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        super().xDelete(filename, syncdir)
        self.keep(Event("delete", Path(filename).name))

    def cut(self, until: int, folder: Path, chance: random.Random) -> None:
        """Make a folder with what the disk may hold if the power fails after so many events."""
        folder.mkdir()
        files: dict[str, _File] = {}
        for event in self.events[:until]:
            if event.kind == "sync":
                _sync(files, event.name, chance)
            elif event.kind != "note":
                files.setdefault(event.name, _File()).pending.append(event)
        for name, file in files.items():
            _settle(file, chance, certain=False)
            if file.there:
                (folder / name).write_bytes(file.synced)


class _RecordedFile(apsw.VFSFile):  # type: ignore[misc,unused-ignore]
    def __init__(self, disk: RecordingDisk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk = disk
        self._name = Path(path or "temporary").name

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.keep(Event("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.keep(Event("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._disk.keep(Event("sync", self._name))


def _no_failure(_: Event) -> None:
    return None


def _sync(files: Mapping[str, _File], name: str, chance: random.Random) -> None:
    """What a sync makes certain. The first one of a new file syncs its folder, and so what was deleted there."""
    file = files[name]
    _settle(file, chance, certain=True)
    if not file.known:
        file.known = True
        for other in files.values():
            if any(event.kind == "delete" for event in other.pending):
                _settle(other, chance, certain=True)


def _settle(file: _File, chance: random.Random, *, certain: bool) -> None:
    """Bring pending events onto the disk: all of them, or of each all, nothing or its beginning."""
    for event in file.pending:
        part = 1.0 if certain else chance.choice((0.0, 1.0, chance.random()))
        if part == 1.0 or (part and event.kind == "write"):
            _apply(file, event, int(len(event.data) * part) // 512 * 512 if part < 1.0 else len(event.data))
    file.pending.clear()


def _apply(file: _File, event: Event, length: int) -> None:
    if event.kind == "delete":
        file.there, file.known, file.synced = False, False, bytearray()
        return
    file.there = True
    if event.kind == "truncate":
        del file.synced[event.offset :]
        return
    file.synced.extend(bytes(max(0, event.offset - len(file.synced))))
    file.synced[event.offset : event.offset + length] = event.data[:length]
