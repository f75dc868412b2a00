"""What the embedded store costs, beside what a disk and SQLite alone cost.

cycle   create, claim, start, complete: four durable replies, with 64 callers; beside the same without syncs
alone   one command by itself; beside inserting the same document with a raw connection and committing it
claim   ready, get, commit among a million tasks; beside the same among 20 thousand
counts  how many tasks are in each state, among a million
page    50 tasks from the middle of a million; beside the first 50
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import anyio
import apsw

sys.path.insert(0, str(Path(__file__).parent))
from _figures import Figure, main, scratch

from codefleet.core.model import Fact, Status, Task
from codefleet.ports import Filter, Page, SystemClock
from codefleet.stores import documents
from codefleet.stores.sqlite import Options, SqliteStore, columns, queries

CALLERS, CYCLES = 64, 5
FEW, LANES = 20_000, 20
NOT_DURABLE = Options(synchronous="OFF", idle=600)
MOST_CYCLE, MOST_ALONE, MOST_CLAIM, MOST_COUNTS = 1.25, 1.5, 1.1, 50.0

numbers = count()


def task(n: int) -> Task:
    return Task(
        id=f"t{n:07}",
        project=f"p{n % LANES}",
        title=f"Task {n}",
        description="Make the parser faster and keep its tests green. " * 8,
        status=Status.PENDING,
        created_at=n,
        updated_at=n,
        rank=n,
    )


def fact(kind: str, held: Task) -> tuple[Fact, ...]:
    return (Fact(kind=kind, at=1, by="bench", project=held.project, task_id=held.id, epoch=held.epoch),)


def sqlite(folder: Path, options: Options) -> SqliteStore:
    clock = SystemClock()
    return SqliteStore(
        folder / "codefleet.db", wake=folder / "wake", backups=folder / "backups", clock=clock, options=options
    )


async def in_turn(acts: Sequence[Callable[[], Awaitable[object]]], rounds: int) -> list[float]:
    """The median seconds of each act, all of them in turn, so that a busy moment meets all alike."""
    taken: list[list[float]] = [[] for _ in acts]
    for _ in range(rounds):
        for act, found in zip(acts, taken, strict=True):
            begun = time.perf_counter()
            await act()
            found.append(time.perf_counter() - begun)
    return [statistics.median(found) for found in taken]


# ------------------------------------------------------------------------------------------------------ cycles


async def cycle(store: SqliteStore) -> None:
    held = await store.add(new := task(next(numbers)), fact("task_created", new))
    for status, kind in (
        (Status.ASSIGNED, "task_assigned"),
        (Status.IN_PROGRESS, "task_started"),
        (Status.COMPLETED, "task_completed"),
    ):
        held = await store.commit(held, replace(held.value, status=status), fact(kind, held.value))


async def cycles(store: SqliteStore) -> None:
    async def caller() -> None:
        for _ in range(CYCLES):
            await cycle(store)

    async with anyio.create_task_group() as group:
        for _ in range(CALLERS):
            group.start_soon(caller)


async def measure_cycles(folder: Path) -> Figure:
    durable, other = sqlite(folder / "durable", Options(idle=600)), sqlite(folder / "other", NOT_DURABLE)
    for store in (durable, other):
        await store.open()
        await cycles(store)
    value, floor = await in_turn([lambda: cycles(durable), lambda: cycles(other)], 25)
    for store in (durable, other):
        await store.close()
    each = 1e6 / (CALLERS * CYCLES)
    return Figure(
        name=f"a durable cycle, {CALLERS} callers",
        value=value * each,
        unit="us",
        floor=floor * each,
        floor_name=f"the same without syncs ({1e6 / (value * each):.0f} against {1e6 / (floor * each):.0f} a second)",
        limit=MOST_CYCLE,
    )


# ------------------------------------------------------------------------------------------------------- alone


async def measure_alone(folder: Path) -> Figure:
    store = sqlite(folder / "alone", Options(idle=600))
    await store.open()
    raw = apsw.Connection(str(folder / "raw.db"))
    for pragma in ("journal_mode = wal", "synchronous = full"):
        raw.execute(f"PRAGMA {pragma}").fetchall()
    raw.execute("CREATE TABLE t (id TEXT PRIMARY KEY, document BLOB)")

    async def ours() -> None:
        new = task(next(numbers))
        await store.add(new, fact("task_created", new))

    async def bare() -> None:
        new = task(next(numbers))
        raw.execute("INSERT INTO t VALUES (?, ?)", (new.id, documents.encode(new)))

    value, floor = await in_turn([ours, bare], 400)
    await store.close()
    raw.close()
    return Figure(
        name="one command alone",
        value=value * 1e6,
        unit="us",
        floor=floor * 1e6,
        floor_name="raw insert + commit",
        limit=MOST_ALONE,
    )


# ----------------------------------------------------------------------------------------------- a long backlog


async def filled(folder: Path, tasks: int) -> SqliteStore:
    """A store with so many pending tasks, put there in bulk."""
    store = sqlite(folder, NOT_DURABLE)
    await store.open()
    db = apsw.Connection(str(folder / "codefleet.db"))
    db.execute("PRAGMA synchronous = off").fetchall()
    db.execute("BEGIN IMMEDIATE")
    db.executemany(queries.SQL["lane_insert"], [(f"p{n}", "") for n in range(LANES)]).fetchall()
    model = task(0)
    document = documents.encode(model)
    id_at, rank_at = b'"id":"t0000000"', b'"rank":0'
    assert id_at in document
    assert rank_at in document
    for n in range(tasks):
        body = document.replace(id_at, b'"id":"t%07d"' % n).replace(rank_at, b'"rank":%d' % n)
        row = columns.of_task(model, body)
        db.execute(
            queries.SQL["task_insert"], (n % LANES + 1, f"p{n % LANES}", "pending", n, *row[3:], None, f"t{n:07}", b"")
        )
    for n in range(LANES):
        db.execute(queries.SQL["tally_add"], (f"p{n}", "pending", tasks // LANES))
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint (truncate)").fetchall()
    db.close()
    return store


async def claim(store: SqliteStore) -> None:
    [key] = await store.ready((), 1)
    [held] = await store.get(Task, [key])
    await store.commit(held, replace(held.value, status=Status.ASSIGNED, epoch=1), fact("task_assigned", held.value))


async def measure_backlog(folder: Path, many: int) -> list[Figure]:
    small, large = await filled(folder / "small", FEW), await filled(folder / "large", many)
    claims = await in_turn([lambda: claim(large), lambda: claim(small)], 1000)
    [counts] = await in_turn([large.counts], 300)
    middle = f"[{many // 2}, 0]"

    async def page(after: str) -> None:
        await large.find(Task, Filter(), Page(after=after))

    pages = await in_turn([lambda: page(middle), lambda: page("")], 100)
    await small.close()
    await large.close()
    return [
        Figure(
            name=f"a claim among {many}",
            value=claims[0] * 1e6,
            unit="us",
            floor=claims[1] * 1e6,
            floor_name=f"among {FEW}",
            limit=MOST_CLAIM,
        ),
        Figure(name=f"counts among {many}", value=counts * 1e6, unit="us", limit=MOST_COUNTS),
        Figure(
            name=f"a page in the middle of {many}",
            value=pages[0] * 1e6,
            unit="us",
            floor=pages[1] * 1e6,
            floor_name="the first page",
        ),
    ]


async def measure(many: int) -> list[Figure]:
    with scratch() as place:
        folder = Path(place)
        return [await measure_cycles(folder), await measure_alone(folder), *await measure_backlog(folder, many)]


def measured(given: argparse.Namespace) -> Sequence[Figure]:
    return anyio.run(measure, given.tasks)


if __name__ == "__main__":
    main("stores", measured, tasks=1_000_000)
