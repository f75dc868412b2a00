"""The process dies, or the power fails: whatever was acknowledged is there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import apsw
import pytest

from codefleet.core.errors import StoreError, StoreUnavailable
from codefleet.core.model import Status, Task
from codefleet.stores.sqlite import Options
from codefleet.testing.faults import Event, RecordingDisk
from codefleet.testing.stores import embedded, fact, opened, task, the

CUTS = 50


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RecordingDisk]:
    disk = RecordingDisk(f"recording-{tmp_path.name}")
    yield disk
    disk.unregister()


async def work(folder: Path, disk: RecordingDisk, *, callers: int, synchronous: str = "FULL") -> None:
    """Add and move tasks, and note each reply in the record of the disk."""

    async def call(who: int) -> None:
        for n in range(48 // callers):
            key = f"t{who}-{n}"
            held = await store.add(task(key, description="x" * 700), [fact("task_created", task_id=key)])
            disk.note(f"{key} pending")
            await store.commit(held, replace(held.value, status=Status.ASSIGNED), [fact(task_id=key)])
            disk.note(f"{key} assigned")

    options = Options(vfs=disk.name, synchronous=synchronous)
    async with opened(embedded(folder, options=options)) as store, anyio.create_task_group() as group:
        for who in range(callers):
            group.start_soon(call, who)


def unsynced_at_replies(events: list[Event]) -> int:
    """How many replies came while something written to the log was not synced."""
    dirty, found = False, 0
    for event in events:
        if event.name.endswith("-wal"):
            dirty = event.kind == "write" or (dirty and event.kind != "sync")
        found += event.kind == "note" and dirty
    return found


async def test_a_sync_happens_before_every_reply(tmp_path: Path, disk: RecordingDisk) -> None:
    await work(tmp_path / "home", disk, callers=1)
    assert sum(event.kind == "note" for event in disk.events) == 96
    assert unsynced_at_replies(disk.events) == 0


async def test_the_record_notices_replies_without_a_sync(tmp_path: Path, disk: RecordingDisk) -> None:
    await work(tmp_path / "home", disk, callers=1, synchronous="OFF")
    assert unsynced_at_replies(disk.events) == 96


async def lost_after_cut(disk: RecordingDisk, folder: Path, chance: random.Random) -> list[str]:
    """The replies that a store does not know any more which was cut off from its power somewhere."""
    until = chance.randrange(first_note(disk.events), len(disk.events))
    disk.cut(until, folder, chance)
    replies = [event.name.split() for event in disk.events[:until] if event.kind == "note"]
    assert replies
    async with opened(embedded(folder)) as store:
        facts = [each.task_id for each in await store.facts()]
        lost = []
        for key, status in replies:
            stored = [held.value.status for held in await store.get(Task, [key])]
            known = stored == [Status.ASSIGNED] or (stored and status == "pending")
            if not known or facts.count(key) < (1 if status == "pending" else 2):
                lost.append(f"{key} {status}")
        assert sum((await store.counts()).values()) == len(set(facts))
    return lost


def first_note(events: list[Event]) -> int:
    return next(n for n, event in enumerate(events) if event.kind == "note") + 1


@pytest.mark.parametrize("callers", [1, 8])
async def test_every_acknowledged_command_survives_a_power_cut_at_any_moment(
    tmp_path: Path, disk: RecordingDisk, callers: int
) -> None:
    await work(tmp_path / "home", disk, callers=callers)
    chance = random.Random(callers)
    for n in range(CUTS // 2):
        assert await lost_after_cut(disk, tmp_path / f"cut{n}", chance) == []
        shutil.rmtree(tmp_path / f"cut{n}")


async def test_a_store_that_does_not_sync_loses_commands_in_a_power_cut(tmp_path: Path, disk: RecordingDisk) -> None:
    """The check above can fail."""
    await work(tmp_path / "home", disk, callers=1, synchronous="OFF")
    chance = random.Random(1)
    lost = 0
    for n in range(10):
        try:
            lost += len(await lost_after_cut(disk, tmp_path / f"cut{n}", chance))
        except StoreError:
            lost += 1
    assert lost


async def test_what_a_checkpoint_wrote_survives_a_power_cut_too(tmp_path: Path, disk: RecordingDisk) -> None:
    await work(tmp_path / "home", disk, callers=4)
    assert any(event.kind == "sync" and event.name == "codefleet.db" for event in disk.events)
    chance = random.Random(7)
    last = len(disk.events)
    for n in range(10):
        folder = tmp_path / f"cut{n}"
        disk.cut(last - n, folder, chance)
        async with opened(embedded(folder)) as store:
            assert (await store.counts())[Status.ASSIGNED] == 48


async def test_an_error_of_the_disk_fails_the_command_and_leaves_a_whole_store(
    tmp_path: Path, disk: RecordingDisk
) -> None:
    folder = tmp_path / "home"

    def refuse(event: Event) -> None:
        if event.name.endswith("-wal") and event.kind in {"write", "sync"} and chance.random() < 0.2:
            raise apsw.IOError

    chance = random.Random(3)
    acknowledged = []
    async with opened(embedded(folder, options=Options(vfs=disk.name))) as store:
        disk.fail = refuse
        for n in range(60):
            with suppress(StoreUnavailable):
                await store.add(task(f"t{n}"), [fact(task_id=f"t{n}")])
                acknowledged.append(f"t{n}")
        disk.fail = lambda _: None
    assert 0 < len(acknowledged) < 60
    async with opened(embedded(folder)) as store:
        for key in acknowledged:
            assert (await the(store, Task, key)).value.id == key
