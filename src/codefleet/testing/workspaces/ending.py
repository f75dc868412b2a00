"""The contract of proof worktrees, of taking worktrees away, and of looking into commits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from codefleet.core.errors import GitError, InvalidInput
from codefleet.ports import Workspaces
from codefleet.testing.workspaces.ground import Ground, Suite, settled, write


def _files(folder: Path) -> list[str]:
    return sorted(
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if not file.is_dir() and file.relative_to(folder).parts[0] != ".git"
    )


class ProofContract(Suite):
    """Worktrees that hold exactly one commit."""

    async def test_a_proof_worktree_holds_exactly_the_commit(self, workspaces: Workspaces, ground: Ground) -> None:
        place = ground.worktrees / ".proof-1"
        one, two = ground.ref("main"), ground.commit({"c.txt": "3\n", "a.txt": None, "src/b.txt": "changed\n"})
        assert await workspaces.proof(ground.path, place, one, []) == place
        assert _files(place) == ["a.txt", "src/b.txt"]
        await workspaces.proof(ground.path, place, two, [])
        assert _files(place) == ["c.txt", "src/b.txt"]
        assert (place / "src" / "b.txt").read_text() == "changed\n"
        await workspaces.proof(ground.path, place, one, [])
        assert _files(place) == ["a.txt", "src/b.txt"]
        assert ground.dirt(place) == ""

    async def test_what_gates_left_is_gone_but_caches_stay(self, workspaces: Workspaces, ground: Ground) -> None:
        ground.commit({".gitignore": "build/\nnode_modules/\n"})
        place, head = ground.worktrees / ".proof-1", ground.ref("main")
        await workspaces.proof(ground.path, place, head, [])
        write(place, {"build/x": "", "node_modules/m": "", "stray": "", "a.txt": "changed\n", "nested/y": ""})
        ground.git("init", "-q", cwd=place / "nested")
        ground.git("add", "stray", cwd=place)
        await workspaces.proof(ground.path, place, head, ["node_modules"])
        assert _files(place) == [".gitignore", "a.txt", "node_modules/m", "src/b.txt"]
        assert (place / "a.txt").read_text() == "one\n"

    async def test_an_index_that_gates_doctored_forges_nothing(self, workspaces: Workspaces, ground: Ground) -> None:
        place, head = ground.worktrees / ".proof-1", ground.ref("main")
        await workspaces.proof(ground.path, place, head, [])
        ground.git("update-index", "--assume-unchanged", "a.txt", cwd=place)
        ground.git("update-index", "--skip-worktree", "src/b.txt", cwd=place)
        write(place, {"a.txt": "forged\n", "src/b.txt": "forged\n"})
        await workspaces.proof(ground.path, place, head, [])
        assert (place / "a.txt").read_text() == "one\n"
        assert (place / "src" / "b.txt").read_text() == "two\n"

    async def test_a_branch_that_gates_checked_out_is_not_moved(self, workspaces: Workspaces, ground: Ground) -> None:
        place, one = ground.worktrees / ".proof-1", ground.ref("main")
        two = ground.commit({"c.txt": "3\n"})
        await workspaces.proof(ground.path, place, one, [])
        ground.git("switch", "-q", "-c", "gates", cwd=place)
        await workspaces.proof(ground.path, place, two, [])
        assert ground.ref("gates") == one
        assert "c.txt" in _files(place)

    @pytest.mark.parametrize("damage", ["folder", "registration", "link", "lock", ".git", "index", "HEAD"])
    async def test_a_proof_worktree_is_whole_again_after_it_was_broken(
        self, workspaces: Workspaces, ground: Ground, damage: str
    ) -> None:
        place, head = ground.worktrees / ".proof-1", ground.ref("main")
        await workspaces.proof(ground.path, place, head, [])
        gitdir = Path(ground.git("rev-parse", "--absolute-git-dir", cwd=place))
        if damage == "folder":
            shutil.rmtree(place)
        elif damage == "registration":
            shutil.rmtree(gitdir)
        elif damage == "link":
            (place / ".git").unlink()
        elif damage == "lock":
            (gitdir / "index.lock").touch()
        else:
            ((place if damage == ".git" else gitdir) / damage).write_text("gitdir: /nowhere\n")
        await workspaces.proof(ground.path, place, head, [])
        assert _files(place) == ["a.txt", "src/b.txt"]
        assert ground.dirt(place) == ""

    @pytest.mark.parametrize("cache", ["", "!x", "a\nb"])
    async def test_a_cache_that_is_no_pattern_is_refused(
        self, workspaces: Workspaces, ground: Ground, cache: str
    ) -> None:
        with pytest.raises(InvalidInput, match="cache"):
            await workspaces.proof(ground.path, ground.worktrees / ".proof-1", ground.ref("main"), [cache])

    async def test_a_commit_that_is_not_there_is_said(self, workspaces: Workspaces, ground: Ground) -> None:
        with pytest.raises(GitError):
            await workspaces.proof(ground.path, ground.worktrees / ".proof-1", "5" * 40, [])


class ReleaseContract(Suite):
    """Taking worktrees away."""

    async def test_a_worktree_goes_when_all_is_saved_and_the_branch_stays(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        head = (await settled(workspaces, where)).head
        assert await workspaces.release(where, task_id="t1") == ""
        assert not where.path.exists()
        assert ground.ref(where.branch) == head
        assert "stub-do-it" not in ground.git("worktree", "list")
        ground.git("switch", "-q", where.branch)
        assert await workspaces.release(where, task_id="t1") == ""

    async def test_unsaved_work_keeps_it_and_is_named(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        await settled(workspaces, where)
        write(where.path, {"precious.txt": "3\n"})
        assert "precious.txt" in await workspaces.release(where, task_id="t1")
        assert (where.path / "precious.txt").exists()

    async def test_salvaged_work_lets_it_go_until_it_changes(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        await workspaces.salvage(where, task_id="t1", number=1)
        write(where.path, {"c.txt": "4\n"})
        assert "c.txt" in await workspaces.release(where, task_id="t1")
        await workspaces.salvage(where, task_id="t1", number=1)
        assert await workspaces.release(where, task_id="t1") == ""
        assert not where.path.exists()

    async def test_commits_that_nothing_holds_keep_it(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("checkout", "-q", "--detach", cwd=where.path)
        ground.commit({"c.txt": "3\n"}, cwd=where.path)
        assert "commit" in await workspaces.release(where, task_id="t1")
        assert where.path.exists()

    async def test_a_lock_of_a_person_keeps_it(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("worktree", "lock", "--reason", "I look at it", str(where.path))
        assert "I look at it" in await workspaces.release(where, task_id="t1")
        again = await workspaces.prepare(ground.order())
        assert (again.path / "a.txt").exists()
        assert not again.fresh

    async def test_one_that_a_person_removed_is_forgotten(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        shutil.rmtree(where.path)
        assert await workspaces.release(where, task_id="t1") == ""
        assert "stub-do-it" not in ground.git("worktree", "list")

    async def test_one_that_was_released_can_be_prepared_again(self, workspaces: Workspaces, ground: Ground) -> None:
        first = await workspaces.prepare(ground.order())
        write(first.path, {"c.txt": "3\n"})
        await settled(workspaces, first)
        await workspaces.release(first, task_id="t1")
        second = await workspaces.prepare(ground.order(number=2))
        assert (second.path / "c.txt").exists()
        assert second.fresh


class ReadingContract(Suite):
    """Looking into commits."""

    async def test_a_patch_shows_what_changed(self, workspaces: Workspaces, ground: Ground) -> None:
        one, two = ground.ref("main"), ground.commit({"a.txt": "uno\n"})
        patch = await workspaces.diff(ground.path, one, two)
        assert "-one\n+uno\n" in patch
        assert patch == await workspaces.diff(ground.path, one, "main")

    async def test_a_file_of_a_commit_or_branch_is_shown(self, workspaces: Workspaces, ground: Ground) -> None:
        old = ground.ref("main")
        ground.commit({"src/b.txt": "new\n", "ü 🎉.txt": "x\n"})
        assert await workspaces.show(ground.path, "main", "src/b.txt") == b"new\n"
        assert await workspaces.show(ground.path, old, "src/b.txt") == b"two\n"
        assert await workspaces.show(ground.path, "main", "ü 🎉.txt") == b"x\n"

    @pytest.mark.parametrize(
        ("commit", "path"), [("main", "none"), ("main", "src"), ("nowhere", "a.txt"), ("", "a.txt"), ("main", "a\nb")]
    )
    async def test_a_file_that_is_not_there_is_none(
        self, workspaces: Workspaces, ground: Ground, commit: str, path: str
    ) -> None:
        assert await workspaces.show(ground.path, commit, path) is None

    async def test_a_commit_contains_what_led_to_it(self, workspaces: Workspaces, ground: Ground) -> None:
        one, two = ground.ref("main"), ground.commit({"c.txt": "3\n"})
        assert await workspaces.contains(ground.path, two, one)
        assert await workspaces.contains(ground.path, "main", two)
        assert not await workspaces.contains(ground.path, one, two)

    @pytest.mark.parametrize("name", ["--output=x", "-p", "nowhere"])
    async def test_names_are_never_taken_for_options(self, workspaces: Workspaces, ground: Ground, name: str) -> None:
        with pytest.raises(GitError):
            await workspaces.diff(ground.path, "main", name)
        with pytest.raises(GitError):
            await workspaces.contains(ground.path, "main", name)
        assert sorted(entry.name for entry in ground.path.iterdir()) == [".git", "a.txt", "src"]


class EndingContract(ProofContract, ReleaseContract, ReadingContract):
    """All of these."""
