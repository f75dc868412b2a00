"""`SqliteStore`: the embedded store. Short reads run where they are asked for, long ones and all writes on threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import apsw

from codefleet.core.errors import Corrupt, NoSpace, StoreUnavailable
from codefleet.core.model import Activity, Aggregate, Engine, Fact, Instant, Lane, Status
from codefleet.ports import Clock, Filter, Held, Page, Paged, Purged, StoreInfo
from codefleet.stores import documents, waiting
from codefleet.stores.sqlite import backups, commands, disk, lists, schema
from codefleet.stores.sqlite import wake as waking
from codefleet.stores.sqlite.commands import Stored
from codefleet.stores.sqlite.connection import Options
from codefleet.stores.sqlite.keeping import Keeper
from codefleet.stores.sqlite.opening import Place
from codefleet.stores.sqlite.pen import INDEX_STEP, Terms
from codefleet.stores.sqlite.transaction import Transaction
from codefleet.stores.sqlite.writer import Writer

A = TypeVar("A", bound=Aggregate)
T = TypeVar("T")

#: Rows that a read may give and still run on the event loop.
SHORT = 200

#: Rows that one transaction of a purge looks at.
PURGE_STEP = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What an open store holds."""

    info: StoreInfo
    short: apsw.Connection
    """For reads on the event loop while the writer is busy."""
    long: apsw.Connection
    """For reads on a thread, one at a time."""
    turn: anyio.CapacityLimiter
    writer: Writer
    wake: waking.Wake
    keeper: Keeper
    closing: ExitStack


class SqliteStore:
    """A `Store` in one file, shared by the processes of this machine."""

    def __init__(
        self,
        path: Path,
        *,
        wake: Path,
        backups: Path,
        clock: Clock,
        options: Options | None = None,
        steps: Sequence[str] | None = None,
    ) -> None:
        self._place = Place(path, backups, options or Options(), steps or schema.steps())
        self._wake = wake
        self._clock = clock
        self._errors = self._place.errors
        self._bell = waiting.Bell()
        self._open: _Parts | None = None
        self._damage: Corrupt | None = None
        self._roomy_until = 0.0

    # -------------------------------------------------------------------------------------------------- life

    async def open(self) -> StoreInfo:
        if self._open is None:
            info, db = await anyio.to_thread.run_sync(self._place.open, self._clock.now())
            with self._errors:
                self._open = self._assemble(info, db)
        return self._open.info

    def _assemble(self, info: StoreInfo, db: apsw.Connection) -> _Parts:
        with ExitStack() as closing:
            closing.callback(db.close)
            connections = [self._place.connect(), self._place.connect()]
            for each in connections:
                closing.callback(each.close)
            wake = waking.Wake(self._wake)
            closing.callback(wake.close)
            keeper = Keeper(self._place, self._distrust)
            closing.callback(keeper.close)
            writer = Writer(db, self._terms(wake))
            closing.callback(writer.close)
            short, long = connections
            turn = anyio.CapacityLimiter(1)
            return _Parts(
                info=info,
                short=short,
                long=long,
                turn=turn,
                writer=writer,
                wake=wake,
                keeper=keeper,
                closing=closing.pop_all(),
            )

    def _terms(self, wake: waking.Wake) -> Terms:
        return Terms(
            options=self._place.options,
            errors=self._errors,
            schema=len(self._place.steps),
            admit=self._admit,
            stated=wake.ring,
        )

    def _admit(self) -> None:
        if self._damage is not None:
            raise self._damage
        now = time.monotonic()
        if now >= self._roomy_until:
            disk.require_space(self._place.path.parent, self._place.options.reserve)
            self._roomy_until = now + self._place.options.roomy

    def _distrust(self, damage: Corrupt) -> None:
        self._damage = damage

    async def close(self) -> None:
        parts, self._open = self._open, None
        self._bell.ring()
        if parts is not None:
            with anyio.CancelScope(shield=True), self._errors:
                await anyio.to_thread.run_sync(parts.closing.close)

    @property
    def _parts(self) -> _Parts:
        if self._open is None:
            raise StoreUnavailable("the store is not open")
        if self._damage is not None:
            raise self._damage
        return self._open

    # ------------------------------------------------------------------------------------ reading and writing

    def _read(self, question: Callable[..., T], *arguments: Any) -> T:
        """Answer here and now: for what takes microseconds."""
        parts = self._parts
        lent = parts.writer.lend()
        try:
            with self._errors:
                return question(lent or parts.short, *arguments)
        finally:
            if lent is not None:
                parts.writer.take_back()

    async def _read_aside(self, question: Callable[..., T], *arguments: Any) -> T:
        """Answer on a thread: for what may take longer."""
        parts = self._parts
        with self._errors:
            return await anyio.to_thread.run_sync(question, parts.long, *arguments, limiter=parts.turn)

    async def _read_up_to(self, limit: int, question: Callable[..., T], *arguments: Any) -> T:
        if limit <= SHORT:
            return self._read(question, *arguments)
        return await self._read_aside(question, *arguments)

    async def _write(self, command: Callable[[Transaction], T]) -> T:
        return await self._parts.writer.do(command)

    # -------------------------------------------------------------------------------------------- aggregates

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        return self._read(lists.get, kind, ids)

    async def add(self, new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        document = documents.encode(new)
        stored = await self._write(commands.add(new, document, facts))
        return self._held(
            new if stored.document is document else documents.decode(type(new), stored.document), stored, facts
        )

    async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        documents.same_id(held.value, new)
        command = commands.commit(held.value, held.version, new, documents.encode(new), facts)
        return self._held(new, await self._write(command), facts)

    def _held(self, value: A, stored: Stored, facts: Sequence[Fact]) -> Held[A]:
        if facts:
            self._bell.ring()
        return Held(value, stored.version)

    # ------------------------------------------------------------------------------------------------- lists

    async def ready(self, lanes: Sequence[Lane], limit: int, skip: int = 0) -> Sequence[str]:
        return await self._read_up_to(limit + skip, lists.ready, lanes, limit, skip)

    async def lanes(self) -> Sequence[Lane]:
        return self._read(lists.lanes)

    async def waiting_on(self, task: str, after: str = "", limit: int = 500) -> Sequence[str]:
        return self._read(lists.waiting_on, task, after, limit)

    async def owned_by(self, engine: str) -> Sequence[str]:
        return self._read(lists.owned_by, engine)

    async def overdue(self, now: Instant, limit: int = 500) -> Sequence[str]:
        return await self._read_aside(lists.overdue, now, limit)

    async def find(self, kind: type[A], where: Filter, page: Page) -> Paged[A]:
        return await self._read_aside(lists.find, kind, where, page)

    async def counts(self, project: str = "") -> Mapping[Status, int]:
        return self._read(lists.counts, project)

    # ----------------------------------------------------------------------------------------------- engines

    async def beat(self, engine: Engine, now: Instant) -> Instant:
        engine = replace(engine, beat_at=now)
        await self._write(commands.beat(engine, documents.encode(engine)))
        self._parts.keeper.look(self._clock.now())
        return self._clock.now()

    async def engines(self) -> Sequence[Engine]:
        return self._read(lists.engines)

    async def retire(self, engine: str) -> None:
        await self._write(commands.retire(engine))

    # ------------------------------------------------------------------------------------ facts and activity

    async def facts(self, after: str = "", limit: int = 1000, *, task: str = "") -> Sequence[Fact]:
        return await self._read_up_to(limit, lists.facts, after, limit, task)

    async def position(self) -> str:
        newest = self._read(lists.position)
        return str(newest) if newest else ""

    async def changed(self, after: str, timeout: float) -> bool:
        look = _Look(self, self._read(lists.checked, after))
        if look():
            return look.result()
        async with anyio.create_task_group() as group:
            group.start_soon(self._parts.wake.watch, self._bell.ring)
            await waiting.wait_until(look, self._bell, self._clock, timeout, waking.POLL)
            group.cancel_scope.cancel()
        return look.result()

    async def relay(self, limit: int = 1000) -> int:
        """Facts go into the log with their commit: there is nothing to move."""
        return min(0, limit)

    async def log(self, items: Sequence[Activity]) -> None:
        if items:
            await self._write(commands.log(items))

    async def activity(self, run: str = "", after: int = -1, limit: int = 1000) -> Sequence[Activity]:
        return await self._read_up_to(limit, lists.activity, run, after, limit)

    async def last_activity(self, run: str) -> int:
        return self._read(lists.last_activity, run)

    # ------------------------------------------------------------------------------------------- all the rest

    async def similar(self, text: str, project: str, limit: int) -> Sequence[tuple[str, float]]:
        with suppress(NoSpace, StoreUnavailable):
            while self._read(commands.unindexed) and await self._write(commands.index(INDEX_STEP)):
                pass
        return await self._read_aside(lists.similar, text, project, limit)

    async def purge(self, before: Instant) -> Purged:
        facts = activity = 0
        while dropped := await self._write(commands.purge_facts(before, PURGE_STEP)):
            facts += dropped
        for start in range(*self._read(lists.activity_bounds), PURGE_STEP):
            activity += await self._write(commands.purge_activity(before, start, start + PURGE_STEP))
        return Purged(facts=facts, activity=activity)

    async def backup(self, to: Path) -> None:
        await self._read_aside(backups.write, to)


class _Look:
    """Is there a fact behind a position? Keeps an error for whoever waits, instead of raising it among tasks."""

    def __init__(self, store: SqliteStore, position: int) -> None:
        self._newest: Callable[[], int] = partial(store._read, lists.position)  # noqa: SLF001 - a part of the store
        self._position = position
        self._found = False
        self._error: StoreUnavailable | Corrupt | None = None

    def __call__(self) -> bool:
        try:
            self._found = self._newest() > self._position
        except (StoreUnavailable, Corrupt) as error:
            self._error = error
        return self._found or self._error is not None

    def result(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._found
