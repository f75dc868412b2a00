"""What no commit can hold goes to the quarantine before its worktree goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from codefleet.testing.workspaces import Ground, a_repository, isolate_git, settled, write
from codefleet.workspaces import GitWorkspaces


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    isolate_git(monkeypatch, tmp_path / "gitconfig")
    return a_repository(tmp_path / "ground")


@pytest.fixture
def quarantine(tmp_path: Path) -> Path:
    return tmp_path / "quarantine"


@pytest.fixture
def workspaces(quarantine: Path) -> GitWorkspaces:
    return GitWorkspaces(quarantine)


async def test_what_was_left_out_is_moved_there_with_a_note(
    ground: Ground, workspaces: GitWorkspaces, quarantine: Path
) -> None:
    kept = quarantine / "t1"
    where = await workspaces.prepare(ground.order())
    write(where.path, {".env": "KEY=1\n", "deep/huge": "x" * 10_000_001, "c.txt": "3\n", "nested/x": "1\n"})
    ground.git("init", "-q", cwd=where.path / "nested")
    await settled(workspaces, where)
    assert await workspaces.release(where, task_id="t1") == ""
    assert (kept / ".env").read_text() == "KEY=1\n"
    assert (kept / "deep" / "huge").stat().st_size == 10_000_001
    assert (kept / "nested" / "x").exists()
    assert (kept / "nested" / ".git").is_dir()
    assert "deep/huge" in (kept / "NOTE.txt").read_text()
    assert not where.path.exists()


async def test_a_second_one_of_the_same_name_overwrites_nothing(
    ground: Ground, workspaces: GitWorkspaces, quarantine: Path
) -> None:
    for number in (1, 2):
        where = await workspaces.prepare(ground.order(number=number))
        write(where.path, {".env": f"KEY={number}\n"})
        assert await workspaces.release(where, task_id="t1") == ""
    assert (quarantine / "t1" / ".env").read_text() == "KEY=1\n"
    assert (quarantine / "t1" / ".env.1").read_text() == "KEY=2\n"


async def test_copies_of_what_the_project_has_are_not_kept_but_changed_ones_are(
    ground: Ground, workspaces: GitWorkspaces, quarantine: Path
) -> None:
    write(ground.path, {".env": "KEY=1\n", ".secret": "x\n"})
    where = await workspaces.prepare(ground.order())
    await workspaces.copy_files(ground.path, where.path, [".env", ".secret"])
    write(where.path, {".env": "KEY=changed\n"})
    assert await workspaces.release(where, task_id="t1") == ""
    assert sorted(entry.name for entry in (quarantine / "t1").iterdir()) == [".env", "NOTE.txt"]


async def test_nothing_to_keep_makes_no_quarantine(
    ground: Ground, workspaces: GitWorkspaces, quarantine: Path, tmp_path: Path
) -> None:
    where = await workspaces.prepare(ground.order())
    write(where.path, {"c.txt": "3\n"})
    await settled(workspaces, where)
    assert await workspaces.release(where, task_id="t1") == ""
    assert quarantine not in set(tmp_path.iterdir())  # noqa: ASYNC240  a look


async def test_a_submodule_s_own_commits_are_kept(
    ground: Ground, workspaces: GitWorkspaces, quarantine: Path, tmp_path: Path
) -> None:
    library = a_repository(tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    ground.git(*allow, "submodule", "add", "-q", str(library.path), "lib")
    ground.commit({}, "with a submodule")
    where = await workspaces.prepare(ground.order())
    ground.git(*allow, "submodule", "update", "-q", "--init", cwd=where.path)
    write(where.path / "lib", {"a.txt": "dirty\n"})
    assert (await settled(workspaces, where)).left_out == ("lib/",)
    assert "lib" in await workspaces.release(where, task_id="t1")
    inner = ground.commit({}, "inside", cwd=where.path / "lib")
    assert [file.path for file in (await settled(workspaces, where)).files] == ["lib"]
    assert await workspaces.release(where, task_id="t1") == ""
    assert ground.git("cat-file", "-t", inner, cwd=quarantine / "t1" / ".git" / "modules" / "lib") == "commit"


async def test_a_repository_that_the_agent_staged_is_left_out(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    write(where.path, {"nested/x": "1\n"})
    ground.git("init", "-q", cwd=where.path / "nested")
    ground.commit({}, cwd=where.path / "nested")
    ground.git("add", "nested", cwd=where.path)
    made = await settled(workspaces, where)
    assert (made.files, made.left_out) == ((), ("nested/",))


async def test_a_removal_that_was_cut_off_is_gone_on_with(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    entry = ground.path / ".git" / "worktrees" / where.path.name
    (entry / "locked").write_text("codefleet removes it\n")
    (where.path / "a.txt").unlink()
    assert await workspaces.release(where, task_id="t1") == ""
    assert not where.path.exists()
    assert not entry.exists()


async def test_a_removal_that_was_cut_off_does_not_stop_the_next_run(ground: Ground, workspaces: GitWorkspaces) -> None:
    where = await workspaces.prepare(ground.order())
    (ground.path / ".git" / "worktrees" / where.path.name / "locked").write_text("codefleet removes it\n")
    (where.path / "a.txt").unlink()
    again = await workspaces.prepare(ground.order(number=2))
    assert again.fresh
    assert (again.path / "a.txt").exists()
