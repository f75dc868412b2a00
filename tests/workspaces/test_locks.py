"""Locks that a dead git left behind are lifted; those of the living are waited for."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from codefleet.core.errors import GitError
from codefleet.ports import Workspace
from codefleet.testing.workspaces import Ground, a_repository, isolate_git, settled, write
from codefleet.workspaces import GitWorkspaces


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    isolate_git(monkeypatch, tmp_path / "gitconfig")
    return a_repository(tmp_path / "ground")


@pytest.fixture
def workspaces(tmp_path: Path) -> GitWorkspaces:
    return GitWorkspaces(tmp_path / "quarantine")


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await anyio.lowlevel.checkpoint()


def _entry(ground: Ground, where: Workspace) -> Path:
    return ground.path / ".git" / "worktrees" / where.path.name


async def test_locks_left_behind_do_not_stop_a_settle(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    write(where.path, {"c.txt": "3\n"})
    branch = ground.path / ".git" / f"refs/heads/{where.branch}.lock"
    (_entry(ground, where) / "index.lock").touch()
    branch.touch()
    with anyio.fail_after(30):
        made = await settled(workspaces, where)
    assert [file.path for file in made.files] == ["c.txt"]
    assert not branch.exists()


async def test_locks_left_behind_do_not_stop_a_prepare(ground: Ground, workspaces: GitWorkspaces) -> None:
    order = ground.order()
    write(ground.path / ".git", {f"refs/heads/{order.branch}.lock": ""})
    with anyio.fail_after(30):
        where = await workspaces.prepare(order)
    assert (where.path / "a.txt").exists()


async def test_a_git_at_work_in_the_worktree_is_waited_for(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    write(where.path, {"agent.txt": "1\n"})
    ground.git("add", "-A", cwd=where.path)
    write(where.path, {"left.txt": "2\n"})
    go = ground.path.parent / "go"
    editor = f"sh -c 'touch {go}.up; until [ -e {go} ]; do sleep 0.02; done; echo mine >\"$1\"' x"
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(anyio.run_process, ["git", "-c", f"core.editor={editor}", "commit", "-a"], cwd=where.path)
            )
            await until(go.with_name("go.up").exists)
            group.start_soon(settled, workspaces, where)
            await anyio.sleep(0.1)
            go.touch()
        made = await settled(workspaces, where)
    assert len(made.commits) == 2
    assert [file.path for file in made.files] == ["agent.txt", "left.txt"]


async def test_the_lock_of_a_stranger_s_ref_is_not_touched(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    index = ground.path / ".git" / "index.lock"
    index.touch()
    write(where.path, {"c.txt": "3\n"})
    await settled(workspaces, where)
    assert index.exists()


async def test_another_process_that_holds_the_repository_s_lock_is_waited_for(
    ground: Ground, workspaces: GitWorkspaces
) -> None:
    folder = ground.path / ".git" / "codefleet"
    folder.mkdir()
    with (folder / "lock").open("w") as held, anyio.fail_after(30):
        fcntl.flock(held, fcntl.LOCK_EX)
        async with anyio.create_task_group() as group:
            group.start_soon(workspaces.prepare, ground.order())
            await anyio.sleep(0.1)
            assert not (ground.path / ".git" / "worktrees").exists()
            fcntl.flock(held, fcntl.LOCK_UN)
    assert (ground.order().path / "a.txt").exists()


async def test_a_folder_that_is_no_worktree_any_more_is_told(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    (where.path / ".git").unlink()
    with pytest.raises(GitError, match="belongs to no git repository"):
        await settled(workspaces, where)
