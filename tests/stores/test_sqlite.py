"""What the embedded store does beyond the contract: committing together, waking, indexing, backing up, planning."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import apsw
import pytest

from codefleet.core.errors import Corrupt, Exists, Failed, InvalidInput, StoreUnavailable
from codefleet.core.model import Status, Task
from codefleet.ports import SystemClock
from codefleet.stores.sqlite import Options, SqliteStore, queries, schema, wake
from codefleet.testing.faults import RecordingDisk
from codefleet.testing.stores import embedded, engine, fact, opened, task, the

NOW = 1_800_000_000_000
DAY = 24 * 3600 * 1000


@dataclass
class Standing(SystemClock):
    """Wall time that moves when the test says so."""

    at: int = NOW

    def now(self) -> int:
        return self.at


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(embedded(tmp_path)) as store:
        yield store


# --------------------------------------------------------------------------------------------------- together


async def test_many_callers_share_their_syncs(tmp_path: Path) -> None:
    disk = RecordingDisk("sharing")
    async with opened(embedded(tmp_path, options=Options(vfs=disk.name))) as store:
        before = len(disk.events)
        async with anyio.create_task_group() as group:
            for n in range(200):
                group.start_soon(store.add, task(f"t{n}"))
        syncs = sum(event.kind == "sync" for event in disk.events[before:])
    disk.unregister()
    assert 1 <= syncs < 50


async def test_a_refused_command_harms_none_of_those_it_was_committed_with(store: SqliteStore) -> None:
    await store.add(task("taken"))
    refused: list[str] = []

    async def add(key: str, title: str) -> None:
        try:
            await store.add(task(key, title=title), [fact(task_id=key)])
        except Exists:
            refused.append(key)

    async with anyio.create_task_group() as group:
        for n in range(40):
            group.start_soon(add, "taken" if n % 4 == 0 else f"t{n}", f"title {n}")
    assert refused == ["taken"] * 10
    assert (await store.counts())[Status.PENDING] == 31
    assert len(await store.facts()) == 30


async def test_a_command_that_can_not_be_stored_harms_none_of_those_it_was_committed_with(store: SqliteStore) -> None:
    refused: list[str] = []

    async def add(key: str, rank: int) -> None:
        try:
            await store.add(task(key, rank=rank), [fact(task_id=key)])
        except InvalidInput:
            refused.append(key)

    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(add, f"t{n}", 2**63 + 5 if n == 7 else n)
    assert refused == ["t7"]
    assert (await store.counts())[Status.PENDING] == 19
    assert len(await store.facts()) == 19


async def test_what_was_asked_before_closing_is_finished(tmp_path: Path) -> None:
    store = embedded(tmp_path)
    await store.open()
    done: list[str] = []

    async def add(key: str) -> None:
        await store.add(task(key))
        done.append(key)

    async with anyio.create_task_group() as group:
        for n in range(50):
            group.start_soon(add, f"t{n}")
        await anyio.lowlevel.checkpoint()
        group.start_soon(store.close)
    async with opened(embedded(tmp_path)) as again:
        assert len(done) == 50
        assert len(await again.get(Task, done)) == 50


async def test_a_lone_command_that_was_asked_before_closing_is_finished(tmp_path: Path) -> None:
    store = embedded(tmp_path)
    await store.open()
    async with anyio.create_task_group() as group:
        group.start_soon(store.add, task("a"))
        group.start_soon(store.close)
    async with opened(embedded(tmp_path)) as again:
        assert (await the(again, Task, "a")).value.id == "a"


async def test_the_event_loop_goes_on_while_another_process_writes(tmp_path: Path, store: SqliteStore) -> None:
    other = apsw.Connection(str(tmp_path / "codefleet.db"))
    other.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as group:
        group.start_soon(store.add, task("a"))
        await anyio.wait_all_tasks_blocked()
        assert not await store.get(Task, ["a"])
        other.execute("COMMIT")
    other.close()
    assert (await the(store, Task, "a")).value.id == "a"


async def test_the_log_is_brought_into_the_file_and_does_not_grow_for_ever(tmp_path: Path, store: SqliteStore) -> None:
    log, most = anyio.Path(tmp_path / "codefleet.db-wal"), 0
    for n in range(150):
        await store.add(task(f"t{n}", description="v" * 120_000))
        most = max(most, (await log.stat()).st_size) if n % 10 == 0 else most
    assert (await anyio.Path(tmp_path / "codefleet.db").stat()).st_size > 12 << 20
    assert most < 24 << 20


async def test_a_caller_who_gives_up_leaves_all_of_it_or_nothing(store: SqliteStore) -> None:
    for n in range(20):
        with anyio.move_on_after(0):
            await store.add(task(f"t{n}"), [fact(task_id=f"t{n}")])
    await store.add(task("last"), [fact(task_id="last")])
    facts = [each.task_id for each in await store.facts()]
    assert len(await store.get(Task, [f"t{n}" for n in range(20)])) + 1 == len(facts)


async def test_whoever_waits_for_a_store_that_is_closed_is_told(tmp_path: Path) -> None:
    store = embedded(tmp_path)
    await store.open()
    told: list[str] = []

    async def wait() -> None:
        try:
            await store.changed("", 3600)
        except StoreUnavailable as error:
            told.append(error.message)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await store.close()
    assert told == ["the store is not open"]


# ------------------------------------------------------------------------------------------------------- wake


async def test_the_wake_file_is_written_after_a_commit_with_facts_and_stays_one_byte(
    tmp_path: Path, store: SqliteStore
) -> None:
    file = anyio.Path(tmp_path / "wake")
    await store.add(task("silent"))
    assert await file.read_bytes() == b""
    held = await store.add(task("a"), [fact()])
    await store.commit(held, held.value, [fact()])
    assert await file.read_bytes() == b"."


async def test_whoever_watches_hears_a_ring_and_the_next_one_takes_over(tmp_path: Path) -> None:
    bell = wake.Wake(tmp_path / "wake")
    with anyio.fail_after(30):
        for _ in range(2):
            rung = anyio.Event()
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(bell.watch, rung.set)
                await anyio.wait_all_tasks_blocked()
                bell.ring()
                await rung.wait()
                group.cancel_scope.cancel()
    bell.close()


async def test_without_the_wake_file_whoever_waits_finds_the_fact_by_looking(
    tmp_path: Path, store: SqliteStore
) -> None:
    async with opened(embedded(tmp_path)) as other, anyio.create_task_group() as group:
        os.unlink(tmp_path / "wake")  # noqa: PTH108 - nothing of the event loop's business
        group.start_soon(store.add, task("a"), [fact()])
        assert await other.changed("", 60)


# ------------------------------------------------------------------------------------------------------ words


async def test_words_are_indexed_while_there_is_nothing_else_to_do(tmp_path: Path) -> None:
    async with opened(embedded(tmp_path, options=Options(idle=0.001))) as store:
        for n in range(5):
            await store.add(task(f"t{n}", title=f"word{n}"))
        db = apsw.Connection(str(tmp_path / "codefleet.db"))
        with anyio.fail_after(30):
            while queries.value(db, "index_behind"):
                await anyio.lowlevel.checkpoint()
        assert [key for key, _ in await store.similar("word3", "p", 5)] == ["t3"]
        db.close()


async def test_a_search_for_common_words_ranks_by_the_rare_ones(store: SqliteStore) -> None:
    async with anyio.create_task_group() as group:
        for n in range(300):
            group.start_soon(store.add, task(f"t{n}", title="Fixing the bugs" if n else "Fix the bug in parsing"))
    found = await store.similar("the bug parse", "p", 3)
    assert found[0][0] == "t0"
    assert len(found) == 3


# ----------------------------------------------------------------------------------------------------- backups


async def daily(folder: Path) -> list[str]:
    return sorted([path.name async for path in anyio.Path(folder / "backups").glob("*.db")])


async def test_an_engines_beat_makes_one_backup_a_day_and_keeps_a_few(tmp_path: Path) -> None:
    clock = Standing()
    for day in range(9):
        clock.at = NOW + day * DAY
        async with opened(embedded(tmp_path, clock=clock)) as store:
            await store.add(task(f"t{day}"))
            await store.beat(engine("e1"), clock.now())
            await store.beat(engine("e1"), clock.now())
            store._parts.keeper.wait()
    kept = await daily(tmp_path)
    assert len(kept) == 7
    assert kept[-1] == "daily-2027-01-23T080000Z.db"
    os.replace(tmp_path / "backups" / kept[-1], tmp_path / "codefleet.db")  # noqa: PTH105 - as above
    async with opened(embedded(tmp_path)) as store:
        assert (await store.counts())[Status.PENDING] == 9


async def test_what_a_killed_process_left_of_a_backup_is_dropped_after_a_day(tmp_path: Path) -> None:
    clock = Standing()
    left, fresh = anyio.Path(tmp_path / "backups/.old.db.7.part"), anyio.Path(tmp_path / "backups/.new.db.8.part")
    await left.parent.mkdir()
    for path, at in ((left, NOW - 2 * DAY), (fresh, NOW - 1000)):
        await path.write_bytes(b"half")
        os.utime(path, (at / 1000, at / 1000))
    async with opened(embedded(tmp_path, clock=clock)) as store:
        await store.beat(engine("e1"), clock.now())
        store._parts.keeper.wait()
    assert not await left.exists()
    assert await fresh.exists()


async def test_a_client_that_never_beats_makes_no_backup(tmp_path: Path, store: SqliteStore) -> None:
    await store.add(task("a"))
    assert await daily(tmp_path) == []


async def test_a_backup_that_finds_damage_stops_the_store_and_keeps_the_good_ones(tmp_path: Path) -> None:
    clock = Standing()
    async with opened(embedded(tmp_path, clock=clock)) as store:
        for n in range(300):
            await store.add(task(f"t{n}", description="w" * 9000))
        await store.beat(engine("e1"), clock.now())
        store._parts.keeper.wait()
    kept = await daily(tmp_path)
    async with await anyio.open_file(tmp_path / "codefleet.db", "r+b") as file:
        await file.seek(300 * 4096)
        await file.write(bytes(200 * 4096))
    clock.at += DAY
    async with opened(embedded(tmp_path, clock=clock)) as store:
        keeper = store._parts.keeper
        await store.beat(engine("e1"), clock.now())
        keeper.wait()
        with pytest.raises(Corrupt) as refused:
            await store.counts()
        with pytest.raises(Corrupt):
            await store.add(task("more"))
    assert kept[0] in refused.value.hint
    assert await daily(tmp_path) == kept


async def test_a_backup_while_others_write_is_one_moment_of_the_store(tmp_path: Path, store: SqliteStore) -> None:
    async def write() -> None:
        for n in range(100):
            await store.add(task(f"t{n}"), [fact(task_id=f"t{n}")])

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await store.backup(tmp_path / "copy" / "codefleet.db")
    async with opened(embedded(tmp_path / "copy")) as copy:
        assert len(await copy.facts()) == (await copy.counts())[Status.PENDING]


async def test_a_backup_that_can_not_be_written_says_where_and_leaves_nothing(
    tmp_path: Path, store: SqliteStore
) -> None:
    await anyio.Path(tmp_path / "file").write_text("in the way")
    with pytest.raises(Failed, match="file/copy"):
        await store.backup(tmp_path / "file" / "copy")


# ------------------------------------------------------------------------------------------------------ plans


@pytest.fixture
def db(tmp_path: Path) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    for step in schema.steps():
        db.execute(step).fetchall()
    return db


def plan(db: apsw.Connection, name: str) -> str:
    text = queries.SQL[name]
    holes = max((int(number) for number in re.findall(r"\?(\d)", text)), default=text.count("?"))
    found = db.execute(f"EXPLAIN QUERY PLAN {text}", (None,) * holes).fetchall()
    return "\n".join(str(each[3]) for each in found)


#: What looks at a whole small table, or stops at the first rows.
SCANS = {"lane_all", "lanes", "counts_all", "tally_open", "activity_newest", "purge_first_kept"}


@pytest.mark.parametrize("name", sorted(queries.SQL))
def test_no_statement_looks_at_the_whole_backlog(db: apsw.Connection, name: str) -> None:
    found = plan(db, name)
    for line in found.splitlines():
        if line.startswith("SCAN") and name not in SCANS:
            assert re.search("INDEX task_(loose|unawaited|owned)|VIRTUAL TABLE|ended|chain|CONSTANT ROW", line), found


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ready", "COVERING INDEX task_ready (lane=?)"),
        ("tasks_ready", "task_ready (lane=? AND rank>?)"),
        ("tasks", "task_list (project=? AND status=? AND rank>?)"),
        ("overdue_lift", "task_lift (lift_at>? AND lift_at<?)"),
        ("overdue_unawaited", "task_unawaited"),
        ("overdue_loose", "task_loose"),
        ("overdue_asking", "task_asks (asks=?)"),
        ("owned_by", "COVERING INDEX task_owned"),
        ("facts_of_task", "fact_other (other=? AND position>?)"),
        ("records", "record_list (kind=? AND (task,number,id)>(?,?,?))"),
    ],
)
def test_hot_questions_use_the_index_that_was_made_for_them(db: apsw.Connection, name: str, index: str) -> None:
    assert index in plan(db, name)


@pytest.mark.parametrize("name", ["ready", "tasks", "tasks_ready", "records", "facts"])
def test_pages_are_read_in_the_order_of_their_index_without_sorting(db: apsw.Connection, name: str) -> None:
    assert "TEMP B-TREE" not in plan(db, name)


async def test_the_counters_are_what_a_count_would_say(tmp_path: Path, store: SqliteStore) -> None:
    for n, status in enumerate(Status):
        held = await store.add(task(f"t{n}", project="pq"[n % 2]))
        await store.commit(held, replace(held.value, status=status))
    held = await the(store, Task, "t3")
    await store.commit(held, replace(held.value, project="moved"))
    db = apsw.Connection(str(tmp_path / "codefleet.db"))
    counted = db.execute("SELECT project, status, count(*) FROM task GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
    assert db.execute("SELECT * FROM tally WHERE count != 0 ORDER BY 1, 2").fetchall() == counted
    db.close()
