"""A full file system: it is named, nothing is broken, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from codefleet.core.errors import NoSpace
from codefleet.testing.workspaces import Ground, a_repository, isolate_git, settled
from codefleet.workspaces import GitWorkspaces

#: Does not compress.
NOISE = os.urandom(6_000_000)


def _mount(place: Path, options: str) -> bool:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() or not _mount(place, "size=4m"):
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _grow(place: Path) -> None:
    assert _mount(place, "remount,size=64m")


@pytest.fixture
def workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitWorkspaces:
    isolate_git(monkeypatch, tmp_path / "gitconfig")
    return GitWorkspaces(tmp_path / "quarantine")


async def test_no_room_for_a_checkout(workspaces: GitWorkspaces, tmp_path: Path, small: Path) -> None:
    ground = a_repository(tmp_path / "ground")
    (ground.path / "big").write_bytes(NOISE)
    ground.commit({}, "big")
    order = ground.order(path=small / "worktree")
    with pytest.raises(NoSpace, match=f"{small} is full"):
        await workspaces.prepare(order)
    _grow(small)
    where = await workspaces.prepare(order)
    assert (where.path / "big").read_bytes() == NOISE
    assert ground.dirt(where.path) == ""


async def test_no_room_for_commits(workspaces: GitWorkspaces, tmp_path: Path, small: Path) -> None:
    ground = Ground(a_repository(small).path, tmp_path / "worktrees")
    where = await workspaces.prepare(ground.order())
    (where.path / "big").write_bytes(NOISE)
    with pytest.raises(NoSpace, match=f"{small} is full"):
        await settled(workspaces, where)
    with pytest.raises(NoSpace, match=f"{small} is full"):
        await workspaces.salvage(where, task_id="t1", number=1)
    assert (where.path / "big").read_bytes() == NOISE
    _grow(small)
    assert (await workspaces.salvage(where, task_id="t1", number=1)) is not None
    made = await settled(workspaces, where)
    assert [file.path for file in made.files] == ["big"]
    ground.git("fsck")


async def test_no_room_at_all(workspaces: GitWorkspaces, tmp_path: Path, small: Path) -> None:
    ground = Ground(a_repository(small).path, tmp_path / "worktrees")
    _fill(small)
    with pytest.raises(NoSpace, match=f"{small} is full"):
        await workspaces.prepare(ground.order())
    _grow(small)
    where = await workspaces.prepare(ground.order())
    _fill(small)
    with pytest.raises(NoSpace, match=f"{small} is full"):
        await workspaces.exclude(ground.path, ["x" * 100_000])
    assert (await workspaces.prepare(ground.order())).base == where.base


async def test_no_room_for_copies(workspaces: GitWorkspaces, tmp_path: Path, small: Path) -> None:
    ground = a_repository(tmp_path / "ground")
    (ground.path / "secret").write_bytes(NOISE)
    where = await workspaces.prepare(ground.order(path=small / "worktree"))
    with pytest.raises(NoSpace, match=f"{small} is full"):
        await workspaces.copy_files(ground.path, where.path, ["secret"])
    assert sorted(entry.name for entry in where.path.iterdir()) == [".git", "a.txt", "src"]


def _fill(place: Path) -> None:
    with (place / "filler").open("ab", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass
