"""A store that forgets: for tests and trials, held to the same contract suite as the durable ones."""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import anyio

from codefleet.core.errors import InvalidInput, StoreUnavailable
from codefleet.core.model import TERMINAL, Activity, Aggregate, Engine, Fact, Instant, Lane, Status, Task
from codefleet.ports import Clock, Filter, Held, Page, Paged, Purged, StoreInfo
from codefleet.stores import documents, waiting

A = TypeVar("A", bound=Aggregate)


@dataclass(slots=True)
class _Row:
    value: Aggregate
    document: bytes
    version: int
    born: bytes
    """The document that it was added with."""
    n: int
    """Order of arrival."""


@dataclass(slots=True)
class _State:
    rows: dict[tuple[str, str], _Row] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    last: int = 0
    """Position of the newest fact."""
    gone: int = 0
    """Position of the newest fact that was purged."""
    activity: dict[tuple[str, int], tuple[int, Activity]] = field(default_factory=dict)


class MemoryStore:
    """A `Store` in this process's memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state = _State()
        self._count = itertools.count(1)
        self._bell = waiting.Bell()
        self._open = False

    async def open(self) -> StoreInfo:
        self._open = True
        return StoreInfo(kind="memory", schema=1)

    async def close(self) -> None:
        self._open = False
        self._bell.ring()

    @property
    def _rows(self) -> dict[tuple[str, str], _Row]:
        if not self._open:
            raise StoreUnavailable("the store is not open")
        return self._state.rows

    # -------------------------------------------------------------------------------------------- aggregates

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        rows = (self._rows.get((documents.name(kind), key)) for key in ids)
        return [self._held(kind, row) for row in rows if row is not None]

    def _held(self, kind: type[A], row: _Row) -> Held[A]:
        return Held(documents.decode(kind, row.document), row.version)

    async def add(self, new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        kind, key = type(new), (documents.name(type(new)), new.id)
        document = documents.encode(new)
        row = self._rows.get(key)
        if row is not None:
            if document not in {row.document, row.born}:
                raise documents.exists(kind, new.id)
            return self._held(kind, row)
        n = next(self._count)
        return self._put(kind, _Row(new, document, n, document, n), facts)

    async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        documents.same_id(held.value, new)
        kind = type(new)
        document = documents.encode(new)
        row = self._rows.get((documents.name(kind), new.id))
        if row is None:
            raise documents.missing(kind, new.id)
        if row.version != held.version:
            raise documents.stale(kind, new.id)
        return self._put(kind, _Row(new, document, next(self._count), row.born, row.n), facts)

    def _put(self, kind: type[A], row: _Row, facts: Sequence[Fact]) -> Held[A]:
        ready = [documents.decode(Fact, documents.encode(fact)) for fact in facts]
        self._rows[documents.name(kind), row.value.id] = replace(row, value=documents.decode(kind, row.document))
        for fact in ready:
            self._state.last += 1
            self._state.facts.append(replace(fact, position=str(self._state.last)))
        if facts:
            self._bell.ring()
        return self._held(kind, row)

    # ------------------------------------------------------------------------------------------------- lists

    def _tasks(self) -> Iterable[tuple[Task, int]]:
        return [(row.value, row.n) for row in self._rows.values() if isinstance(row.value, Task)]

    async def ready(self, lanes: Sequence[Lane], limit: int, skip: int = 0) -> Sequence[str]:
        wanted = set(lanes)
        found = sorted(
            (task.rank, n, task.id)
            for task, n in self._tasks()
            if documents.is_ready(task) and (not wanted or task.lane in wanted)
        )
        return [key for _, _, key in found[skip : skip + limit]]

    async def lanes(self) -> Sequence[Lane]:
        found = {task.lane for task, _ in self._tasks() if documents.is_ready(task)}
        return sorted(found, key=lambda lane: (lane.project, lane.agent))

    async def waiting_on(self, task: str, after: str = "", limit: int = 500) -> Sequence[str]:
        found = (
            each.id
            for each, _ in self._tasks()
            if task in each.blocked_by or (each.hold is not None and each.hold.on == task)
        )
        return sorted(key for key in found if key > after)[:limit]

    async def owned_by(self, engine: str) -> Sequence[str]:
        return sorted(task.id for task, _ in self._tasks() if engine in documents.owners(task))

    async def overdue(self, now: Instant, limit: int = 500) -> Sequence[str]:
        return [task.id for task, _ in self._tasks() if self._is_overdue(task, now)][:limit]

    def _is_overdue(self, task: Task, now: Instant) -> bool:
        due = documents.lift_at(task)
        return (
            (due is not None and due <= now)
            or (task.status is Status.BLOCKED and all(self._has_ended(key) for key in task.blocked_by))
            or documents.asks(task) == 2
            or (task.status is Status.VERIFIED and task.awaiting is None)
        )

    def _has_ended(self, key: str) -> bool:
        row = self._rows.get(("task", key))
        return row is not None and isinstance(row.value, Task) and row.value.status in TERMINAL

    async def find(self, kind: type[A], where: Filter, page: Page) -> Paged[A]:
        rows = [row for (name, _), row in self._rows.items() if name == documents.name(kind)]
        found = sorted((self._order(row), row) for row in rows if documents.matches(row.value, where))
        behind = [each for each in found if not page.after or each[0] > _cursor(page.after)]
        items = tuple(documents.decode(kind, row.document) for _, row in behind[: page.limit])
        more = len(behind) > page.limit > 0
        return Paged(items, json.dumps(behind[page.limit - 1][0]) if more else "")

    def _order(self, row: _Row) -> tuple[Any, ...]:
        if isinstance(row.value, Task):
            return row.value.rank, row.n
        return getattr(row.value, "task_id", ""), documents.number(row.value), row.value.id

    async def counts(self, project: str = "") -> dict[Status, int]:
        found = [task.status for task, _ in self._tasks() if project in {"", task.project}]
        return {status: found.count(status) for status in Status}

    # ----------------------------------------------------------------------------------------------- engines

    async def beat(self, engine: Engine, now: Instant) -> Instant:
        engine = replace(engine, beat_at=now)
        document, n = documents.encode(engine), next(self._count)
        row = self._rows.get(("engine", engine.id))
        self._rows["engine", engine.id] = _Row(engine, document, n, document, row.n if row else n)
        return self._clock.now()

    async def engines(self) -> Sequence[Engine]:
        found = [row.value for row in self._rows.values() if isinstance(row.value, Engine)]
        return sorted(found, key=lambda engine: engine.id)

    async def retire(self, engine: str) -> None:
        self._rows.pop(("engine", engine), None)

    # ------------------------------------------------------------------------------------ facts and activity

    async def facts(self, after: str = "", limit: int = 1000, *, task: str = "") -> Sequence[Fact]:
        position = self._position(after)
        found = [fact for fact in self._behind(position) if not task or fact.task_id == task]
        return [replace(fact, data=documents.data(documents.encode(fact.data))) for fact in found[:limit]]

    def _position(self, after: str) -> int:
        if after and not after.isdecimal():
            raise InvalidInput(f"{after!r} is no position of a fact", hint="take one from `codefleet events`")
        position = int(after or 0)
        if (after and position < self._state.gone) or position > self._state.last:
            raise documents.gone(after)
        return position

    def _behind(self, position: int) -> list[Fact]:
        return self._state.facts[bisect_right(self._state.facts, position, key=lambda fact: int(fact.position)) :]

    async def position(self) -> str:
        return str(self._state.last) if self._state.last else ""

    async def changed(self, after: str, timeout: float) -> bool:
        position = self._position(after)
        return await waiting.wait_until(lambda: self._state.last > position, self._bell, self._clock, timeout, math.inf)

    async def relay(self, limit: int = 1000) -> int:
        return min(0, limit)

    async def log(self, items: Sequence[Activity]) -> None:
        for item in items:
            kept = replace(item, data=documents.data(documents.encode(item.data)))
            self._state.activity.setdefault((item.run, item.n), (next(self._count), kept))

    async def activity(self, run: str = "", after: int = -1, limit: int = 1000) -> Sequence[Activity]:
        if not run:
            newest = sorted(self._state.activity.values(), key=itemgetter(0))[-limit:] if limit else []
            return [item for _, item in newest]
        keys = sorted(key for key in self._state.activity if key[0] == run and key[1] > after)
        return [self._state.activity[key][1] for key in keys[:limit]]

    async def last_activity(self, run: str) -> int:
        return max((n for key, n in self._state.activity if key == run), default=-1)

    # ------------------------------------------------------------------------------------------- all the rest

    async def similar(self, text: str, project: str, limit: int) -> Sequence[tuple[str, float]]:
        wanted = set(documents.words(text))
        tasks = [(task, documents.words(" ".join(documents.text(task)))) for task, _ in self._tasks()]
        number = {word: sum(word in found for _, found in tasks) for word in wanted}
        scores = [
            (task.id, sum(math.log(1 + len(tasks) / number[word]) for word in wanted.intersection(found)))
            for task, found in tasks
            if project in {"", task.project}
        ]
        return sorted((each for each in scores if each[1]), key=lambda each: (-each[1], each[0]))[:limit]

    async def purge(self, before: Instant) -> Purged:
        old = list(itertools.takewhile(lambda fact: fact.at < before, self._state.facts[:-1]))
        if old:
            self._state.gone = int(old[-1].position)
            del self._state.facts[: len(old)]
        last = dict(sorted(self._state.activity))
        dead = [k for k, (_, item) in self._state.activity.items() if item.at < before and k[1] < last[k[0]]]
        for key in dead:
            del self._state.activity[key]
        return Purged(facts=len(old), activity=len(dead))

    async def backup(self, to: Path) -> None:
        """All documents, one a line."""
        lines = [row.document for row in self._rows.values()]
        await anyio.Path(to.parent).mkdir(parents=True, exist_ok=True)
        await anyio.Path(to).write_bytes(b"\n".join(lines) + b"\n")


def _cursor(after: str) -> tuple[Any, ...]:
    try:
        return tuple(json.loads(after))
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{after!r} is no cursor of a list") from error
