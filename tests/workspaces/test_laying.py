"""Worktrees that we register ourselves are to git what its own are; what needs more is left to git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codefleet.core.errors import GitError
from codefleet.testing.workspaces import Ground, a_repository, isolate_git, settled, write
from codefleet.workspaces import GitWorkspaces


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    isolate_git(monkeypatch, tmp_path / "gitconfig")
    return a_repository(tmp_path / "ground")


@pytest.fixture
def workspaces(tmp_path: Path) -> GitWorkspaces:
    return GitWorkspaces(tmp_path / "quarantine")


async def test_git_knows_them_like_its_own(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    ground.git("worktree", "add", "-q", "--lock", "-b", "theirs", str(ground.worktrees / "theirs"))
    ground.git("worktree", "unlock", str(ground.worktrees / "theirs"))
    listed = ground.git("worktree", "list", "--porcelain").split("\n\n")[1:]
    ours, theirs = (
        one.replace("stub-do-it-t1", "X").replace("stub/do-it/t1", "X").replace("theirs", "X") for one in listed
    )
    assert ours == theirs
    ground.git("worktree", "prune", "--expire", "now")
    ground.git("gc", "-q", "--prune=now")
    ground.git("fsck")
    moved = ground.worktrees / "moved"
    ground.git("worktree", "move", str(where.path), str(moved))
    assert ground.git("branch", "--show-current", cwd=moved) == where.branch
    ground.git("worktree", "remove", str(moved))
    assert "moved" not in ground.git("worktree", "list")


@pytest.mark.parametrize("name", ["with space", "ünï-🎉", "a.b", ".hidden", "…", "t1"])
async def test_any_folder_name_will_do(ground: Ground, workspaces: GitWorkspaces, name: str) -> None:
    ground.git("worktree", "add", "-q", "-b", "theirs", str(ground.worktrees / "elsewhere" / "t1"))
    order = ground.order(path=ground.worktrees / name)
    where = await workspaces.prepare(order)
    assert ground.dirt(where.path) == ""
    (where.path / ".git").rename(ground.path / "kept")
    (where.path / "a.txt").unlink()
    (ground.path / "kept").rename(where.path / ".git")
    assert not (await workspaces.prepare(order)).fresh
    ground.git("restore", ".", cwd=where.path)
    assert await workspaces.release(where, task_id="t1") == ""
    assert (await workspaces.prepare(ground.order(number=2, path=order.path))).fresh


async def test_a_sparse_checkout_stays_sparse(ground: Ground, workspaces: GitWorkspaces) -> None:
    ground.commit({"other/c.txt": "3\n"})
    ground.git("sparse-checkout", "set", "src")
    where = await workspaces.prepare(ground.order())
    assert not (where.path / "other").exists()
    assert (where.path / "src" / "b.txt").exists()
    write(where.path, {"src/new.txt": "1\n"})
    made = await settled(workspaces, where)
    assert [file.path for file in made.files] == ["src/new.txt"]
    assert "other/c.txt" in ground.names(made.head)


async def test_settings_of_a_worktree_are_git_s_to_copy(ground: Ground, workspaces: GitWorkspaces) -> None:
    ground.git("config", "extensions.worktreeConfig", "true")
    ground.git("config", "--worktree", "user.name", "Only here")
    where = await workspaces.prepare(ground.order())
    assert ground.dirt(where.path) == ""
    write(where.path, {"c.txt": "1\n"})
    assert [file.path for file in (await settled(workspaces, where)).files] == ["c.txt"]


async def test_what_a_killed_engine_left_of_a_registration_is_swept(ground: Ground, workspaces: GitWorkspaces) -> None:
    write(ground.path / ".git" / "codefleet" / "new-dead", {"HEAD": "ref: refs/heads/x\n"})
    order = ground.order()
    write(order.path, {".git": f"gitdir: {ground.path}/.git/worktrees/{order.path.name}\n"})
    where = await workspaces.prepare(order)
    assert (where.path / "a.txt").exists()
    await workspaces.prepare(ground.order("t2"))
    assert not list((ground.path / ".git" / "codefleet").glob("new-*"))


@pytest.mark.parametrize("files", [[], ["a.txt"], ["a.txt", "src/b.txt"]])
async def test_a_checkout_that_was_cut_off_is_finished(
    ground: Ground, workspaces: GitWorkspaces, files: list[str]
) -> None:
    """Killed between registration and the end of it all: refs or files may be missing, the index too."""
    where = await workspaces.prepare(ground.order())
    entry = ground.path / ".git" / "worktrees" / where.path.name
    (entry / "codefleet" / "filled").unlink()
    for ref in ("refs/codefleet/base/t1/1", f"refs/heads/{where.branch}"):
        ground.git("update-ref", "-d", ref)
    for name in files:
        write(where.path, {name: None})
    if len(files) < 2:
        (entry / "index").unlink()
    again = await workspaces.prepare(ground.order())
    assert again.base == where.base == ground.ref(where.branch)
    assert ground.dirt(where.path) == ""
    assert (where.path / "a.txt").read_text() == "one\n"


async def test_a_place_that_may_not_be_written_is_told(ground: Ground, workspaces: GitWorkspaces) -> None:
    write(ground.path, {"file": ""})
    with pytest.raises(GitError, match="Not a directory"):
        await workspaces.prepare(ground.order(path=Path(os.devnull) / "worktree"))
