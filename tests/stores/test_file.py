"""What a file must be to be used, and what becomes of one that is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from codefleet.core.errors import Corrupt, NoSpace, SchemaMismatch, StoreUnavailable
from codefleet.core.model import Status, Task
from codefleet.ports import Filter, Page, Store, SystemClock
from codefleet.stores.sqlite import Options, SqliteStore, disk, schema
from codefleet.testing.stores import embedded, engine, fact, opened, task, the

NEXT = (*schema.steps(), "CREATE TABLE later (n INTEGER PRIMARY KEY) STRICT; UPDATE task SET rank = rank + 1;")


async def filled(folder: Path, tasks: int = 20, text: int = 600) -> None:
    """A store with some tasks in it."""
    async with opened(embedded(folder)) as store:
        for n in range(tasks):
            await store.add(task(f"t{n}", description="y" * text), [fact(task_id=f"t{n}")])


def content(folder: Path) -> dict[str, bytes]:
    """All files of the store, but for the shared memory, which is nobody's content."""
    return {path.name: path.read_bytes() for path in folder.glob("codefleet.db*") if not path.name.endswith("-shm")}


def edit(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


# ----------------------------------------------------------------------------------------------------- schema


async def test_a_newer_store_is_refused_untouched_and_says_what_to_do(tmp_path: Path) -> None:
    await filled(tmp_path)
    db = apsw.Connection(str(tmp_path / "codefleet.db"))
    db.pragma("user_version", len(NEXT))
    db.close()
    before = content(tmp_path)
    with pytest.raises(SchemaMismatch, match="newer codefleet") as refused:
        await embedded(tmp_path).open()
    assert "install that version" in refused.value.hint
    assert content(tmp_path) == before


async def test_an_older_store_is_migrated_after_a_backup_and_nothing_is_lost(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with opened(embedded(tmp_path, steps=NEXT)) as store:
        info = await store.open()
        assert info.schema == len(NEXT)
        assert (await store.counts())[Status.PENDING] == 20
        assert len(await store.facts()) == 20
    backup = Path(info.backup)
    assert backup.parent == tmp_path / "backups"
    shutil.copy(backup, tmp_path / "codefleet.db")
    async with opened(embedded(tmp_path)) as store:
        assert (await store.counts())[Status.PENDING] == 20


async def test_opening_todays_store_makes_no_backup(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with opened(embedded(tmp_path)) as store:
        assert not (await store.open()).backup
    assert not (tmp_path / "backups").exists()


async def test_a_migration_that_fails_leaves_the_old_store(tmp_path: Path) -> None:
    await filled(tmp_path)
    with pytest.raises(StoreUnavailable):
        await embedded(tmp_path, steps=(*NEXT, "CREATE TABLE later (n)")).open()
    async with opened(embedded(tmp_path)) as store:
        assert (await store.counts())[Status.PENDING] == 20


async def test_no_migration_while_an_engine_of_the_older_version_works(tmp_path: Path) -> None:
    async with opened(embedded(tmp_path)) as store:
        await store.beat(engine("e_busy"), SystemClock().now())
    with pytest.raises(SchemaMismatch, match="e_busy") as refused:
        await embedded(tmp_path, steps=NEXT).open()
    assert "end it" in refused.value.hint
    async with opened(embedded(tmp_path)) as store:
        await store.beat(engine("e_busy"), SystemClock().now() - 3_600_000)
    async with opened(embedded(tmp_path, steps=NEXT)) as store:
        assert (await store.open()).schema == len(NEXT)


async def test_a_process_of_the_older_version_writes_nothing_after_a_migration(tmp_path: Path) -> None:
    async with opened(embedded(tmp_path)) as old:
        await old.add(task("a"))
        async with opened(embedded(tmp_path, steps=NEXT)) as new:
            with pytest.raises(SchemaMismatch):
                await old.add(task("b"))
            assert (await new.counts())[Status.PENDING] == 1


# ----------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("with_backup", [False, True])
@pytest.mark.parametrize("damage", ["no database", "another program's", "head", "empty", "zeroed pages", "cut off"])
async def test_a_damaged_store_is_refused_untouched_and_names_the_newest_backup(
    tmp_path: Path, damage: str, *, with_backup: bool
) -> None:
    await filled(tmp_path)
    if with_backup or damage == "empty":
        async with opened(embedded(tmp_path)) as store:
            await store.backup(tmp_path / "backups" / "older.db")
            await store.backup(tmp_path / "backups" / "newer.db")
        os.utime(tmp_path / "backups" / "older.db", (1, 1))
    break_it(tmp_path / "codefleet.db", damage)
    before = content(tmp_path)
    with pytest.raises(Corrupt) as refused:
        await embedded(tmp_path).open()
    assert ("newer.db" if with_backup or damage == "empty" else "no backup") in refused.value.hint
    assert content(tmp_path) == before


async def test_a_damaged_store_keeps_the_log_that_a_killed_process_left(tmp_path: Path) -> None:
    live, left = tmp_path / "live", tmp_path / "left"
    left.mkdir()
    async with opened(embedded(live)) as store:
        await store.add(task("a"), [fact()])
        for path in live.glob("codefleet.db*"):
            shutil.copy(path, left)
    edit(left / "codefleet.db", 100, b"damage")
    edit(left / "codefleet.db-wal", 32 + 24 + 100, b"damage")
    before = content(left)
    assert before["codefleet.db-wal"]
    with pytest.raises(Corrupt):
        await embedded(left).open()
    assert content(left) == before


def break_it(path: Path, damage: str) -> None:
    match damage:
        case "no database":
            path.write_bytes(b"hello, this is text\n" * 500)
        case "another program's":
            path.unlink()
            db = apsw.Connection(str(path))
            db.execute("CREATE TABLE theirs (x)")
            db.close()
        case "head":
            edit(path, 0, bytes(100))
        case "empty":
            path.write_bytes(b"")
        case "zeroed pages":
            edit(path, 5 * 4096, bytes(8 * 4096))
        case _:
            os.truncate(path, path.stat().st_size // 2)


async def test_a_store_is_as_good_as_its_backup(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with opened(embedded(tmp_path)) as store:
        await store.backup(tmp_path / "backups" / "whole.db")
    edit(tmp_path / "codefleet.db", 0, bytes(4096))
    shutil.copy(tmp_path / "backups" / "whole.db", tmp_path / "codefleet.db")
    async with opened(embedded(tmp_path)) as store:
        assert (await store.counts())[Status.PENDING] == 20
        await store.add(task("after"))


async def test_damage_that_shows_later_is_an_error_and_no_answer(tmp_path: Path) -> None:
    await filled(tmp_path, 300, 20_000)
    assert (tmp_path / "codefleet.db").stat().st_size > 4 << 20
    pages = (tmp_path / "codefleet.db").stat().st_size // 4096
    edit(tmp_path / "codefleet.db", 40 * 4096, bytes((pages - 50) * 4096))
    with pytest.raises(Corrupt, match="can not be believed"):
        async with opened(embedded(tmp_path)) as store:
            await store.find(Task, Filter(), Page(limit=5000))


async def test_a_broken_document_is_an_error_and_no_answer(tmp_path: Path) -> None:
    await filled(tmp_path, 1)
    db = apsw.Connection(str(tmp_path / "codefleet.db"))
    db.execute("UPDATE task SET document = x'7b'")
    db.close()
    async with opened(embedded(tmp_path)) as store:
        with pytest.raises(Corrupt):
            await store.get(Task, ["t0"])


# ------------------------------------------------------------------------------------------------------ disks


@pytest.mark.parametrize(
    ("kind", "options", "refused"),
    [
        ("nfs4", "rw", True),
        ("cifs", "rw", True),
        ("fuse.sshfs", "rw", True),
        ("9p", "rw,aname=drvfs;path=C:\\", True),
        ("9p", "rw,trans=virtio", False),
        ("fuse.lxcfs", "rw", False),
        ("ext4", "rw", False),
        ("overlay", "rw", False),
        ("tmpfs", "rw", False),
    ],
)
def test_network_file_systems_are_told_from_local_ones(kind: str, options: str, refused: bool) -> None:
    assert disk.is_network(kind, options) is refused


def test_the_mount_that_a_path_lies_on_is_the_innermost() -> None:
    table = (
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "40 22 0:40 / /home rw shared:1 - nfs4 server:/home rw,vers=4.2\n"
        "41 40 0:41 / /home/my\\040own rw - ext4 /dev/vdb rw\n"
    )
    assert disk.mount_of(Path("/srv/x"), table)[1] == "ext4"
    assert disk.mount_of(Path("/home/me/.codefleet"), table)[:2] == ("/home", "nfs4")
    assert disk.mount_of(Path("/home/my own/x"), table)[:2] == ("/home/my own", "ext4")
    assert disk.mount_of(Path("/homes/me"), table)[:2] == ("/", "ext4")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> None:
    """Take the room on a disk, but for some bytes."""
    (folder / "ballast").write_bytes(b"")
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "ballast").write_bytes(bytes(max(0, free - leave)))


async def test_with_little_room_left_nothing_is_written_until_there_is_more(small_disk: Path) -> None:
    async with opened(embedded(small_disk, options=Options(roomy=0))) as store:
        held = await store.add(task("a"), [fact()])
        fill(small_disk, 15 << 20)
        with pytest.raises(NoSpace, match="file system") as full:
            await store.commit(held, replace(held.value, title="new"), [fact()])
        assert str(small_disk) in full.value.message
        assert (await the(store, Task, "a")) == held
        assert len(await store.facts()) == 1
        async with opened(embedded(small_disk, options=Options(roomy=0))) as other:
            assert (await the(other, Task, "a")).value == held.value  # whoever only looks is served
            with pytest.raises(NoSpace):
                await other.add(task("b"))
        with pytest.raises(NoSpace):
            await SqliteStore(
                small_disk / "new.db", wake=small_disk / "w", backups=small_disk / "b", clock=SystemClock()
            ).open()
        (small_disk / "ballast").unlink()
        await store.commit(held, replace(held.value, title="new"), [fact()])
        assert len(await store.facts()) == 2


async def test_a_disk_that_runs_full_tears_nothing_and_work_goes_on_when_there_is_room(small_disk: Path) -> None:
    known: list[str] = []
    async with opened(embedded(small_disk, options=Options(reserve=0))) as store:
        await store.add(task("first"), [fact(task_id="first")])
        fill(small_disk, 1 << 20)
        with pytest.raises(NoSpace):
            await add_until_it_fails(store, known)
        assert (await store.counts())[Status.PENDING] == len(known) + 1
        assert len(await store.get(Task, known)) == len(known)
        (small_disk / "ballast").unlink()
        for n in range(100):
            await store.add(task(f"after{n}"), [fact(task_id=f"after{n}")])
    async with opened(embedded(small_disk)) as store:
        assert len(await store.facts()) == len(known) + 101
        assert (await store.counts())[Status.PENDING] == len(known) + 101
    assert whole(small_disk / "codefleet.db")


async def add_until_it_fails(store: Store, known: list[str]) -> None:
    for n in range(1000):
        await store.add(task(f"t{n}", description="z" * 5000), [fact(task_id=f"t{n}")])
        known.append(f"t{n}")


def whole(path: Path) -> bool:
    db = apsw.Connection(str(path))
    found: Sequence[object] = db.execute("PRAGMA integrity_check").fetchall()
    db.close()
    return found == [("ok",)]


async def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "codefleet.db").mkdir()
    with pytest.raises(StoreUnavailable, match=r"codefleet\.db"):
        await embedded(tmp_path).open()


async def test_a_store_that_stays_locked_is_unavailable_and_later_works_on(tmp_path: Path) -> None:
    async with opened(embedded(tmp_path, options=Options(busy=0.05))) as store:
        other = apsw.Connection(str(tmp_path / "codefleet.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.add(task("a"))
        other.execute("ROLLBACK")
        other.close()
        await store.add(task("a"))
