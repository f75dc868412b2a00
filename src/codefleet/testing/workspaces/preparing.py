"""The contract of looking at a path and of making workspaces."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from codefleet.core.errors import GitError, InvalidInput, NotAllowed, NotFound
from codefleet.ports import Workspace, Workspaces
from codefleet.testing.workspaces.ground import DEADLINE, Ground, Suite, an_empty_repository, change, settled, write


class ProbeContract(Suite):
    """What a path turns out to be."""

    async def test_a_repository_is_known_by_its_top_and_its_branch(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        found = await workspaces.probe(ground.path / "src")
        assert (found.path, found.git, found.branch, found.default_target, found.empty) == (
            ground.path,
            True,
            "main",
            "main",
            False,
        )

    async def test_a_folder_without_git_is_itself(self, workspaces: Workspaces, tmp_path: Path) -> None:
        found = await workspaces.probe(tmp_path)
        assert (found.path, found.git, found.branch) == (tmp_path, False, "")

    async def test_nothing_there_is_not_found(self, workspaces: Workspaces, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="no-such"):
            await workspaces.probe(tmp_path / "no-such")

    async def test_the_remote_s_head_is_the_default_target(self, workspaces: Workspaces, ground: Ground) -> None:
        ground.git("branch", "trunk")
        ground.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
        ground.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
        assert (await workspaces.probe(ground.path)).default_target == "trunk"

    async def test_main_then_master_then_the_branch_checked_out_is_the_default_target(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        ground.git("switch", "-q", "-c", "dev")
        assert (await workspaces.probe(ground.path)).default_target == "main"
        ground.git("branch", "-m", "main", "master")
        assert (await workspaces.probe(ground.path)).default_target == "master"
        ground.git("branch", "-D", "master")
        assert (await workspaces.probe(ground.path)).default_target == "dev"

    async def test_a_detached_head_has_no_branch(self, workspaces: Workspaces, ground: Ground) -> None:
        ground.git("checkout", "-q", "--detach")
        found = await workspaces.probe(ground.path)
        assert (found.branch, found.default_target) == ("", "main")

    async def test_a_repository_without_a_commit_is_empty(self, workspaces: Workspaces, tmp_path: Path) -> None:
        empty = an_empty_repository(tmp_path / "empty")
        found = await workspaces.probe(empty.path)
        assert (found.git, found.empty, found.branch, found.default_target) == (True, True, "main", "main")

    async def test_a_bare_repository_is_one(self, workspaces: Workspaces, ground: Ground, tmp_path: Path) -> None:
        bare = tmp_path / "bare.git"
        ground.git("clone", "-q", "--bare", str(ground.path), str(bare))
        found = await workspaces.probe(bare)
        assert (found.path, found.git, found.default_target) == (bare.resolve(), True, "main")


class PrepareContract(Suite):
    """Making workspaces."""

    async def test_a_worktree_stands_on_the_branch_of_the_order_at_the_target(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        assert (where.git, where.fresh, where.conflicts) == (True, True, {})
        assert where.base == ground.ref("main") == ground.ref("refs/codefleet/base/t1/1")
        assert ground.git("branch", "--show-current", cwd=where.path) == "stub/do-it/t1" == where.branch
        assert (where.path / "src" / "b.txt").read_text() == "two\n"
        assert ground.dirt(where.path) == ""

    async def test_the_person_s_checkout_is_not_touched(self, workspaces: Workspaces, ground: Ground) -> None:
        write(ground.path, {"a.txt": "mine\n", "new.txt": "mine\n"})
        ground.git("add", "new.txt")
        before = (ground.dirt(), ground.git("branch", "--show-current"))
        where = await workspaces.prepare(ground.order())
        assert (ground.dirt(), ground.git("branch", "--show-current")) == before
        assert (where.path / "a.txt").read_text() == "one\n"

    async def test_preparing_again_changes_nothing(self, workspaces: Workspaces, ground: Ground) -> None:
        first = await workspaces.prepare(ground.order())
        write(first.path, {"a.txt": "half done\n", "new.txt": "new\n"})
        ground.commit({"c.txt": "the target moves\n"})
        again = await workspaces.prepare(ground.order())
        assert again == replace(first, fresh=False)
        assert (first.path / "a.txt").read_text() == "half done\n"
        assert (first.path / "new.txt").exists()

    async def test_a_later_run_goes_on_with_the_branch(self, workspaces: Workspaces, ground: Ground) -> None:
        first = await workspaces.prepare(ground.order())
        write(first.path, {"done.txt": "by run 1\n"})
        one = await settled(workspaces, first)
        shutil.rmtree(first.path)
        second = await workspaces.prepare(ground.order(number=2))
        assert second.base == first.base == ground.ref("refs/codefleet/base/t1/2")
        assert ground.git("rev-parse", "HEAD", cwd=second.path) == one.head
        write(second.path, {"more.txt": "by run 2\n"})
        two = await settled(workspaces, second, number=2)
        assert [file.path for file in two.files] == ["done.txt", "more.txt"]

    async def test_a_run_goes_on_from_a_commit_when_the_branch_is_not_there(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        first = await workspaces.prepare(ground.order())
        write(first.path, {"half.txt": "half\n"})
        kept = await workspaces.salvage(first, task_id="t1", number=1)
        assert kept is not None
        order = ground.order(number=2, branch="stub/do-it/t1-2", path=ground.worktrees / "other", resume=kept.commit)
        second = await workspaces.prepare(order)
        assert (second.path / "half.txt").read_text() == "half\n"
        assert second.base == first.base

    async def test_upstream_work_is_in_the_base(self, workspaces: Workspaces, ground: Ground) -> None:
        one = ground.branch("one", {"one.txt": "1\n"})
        two = ground.branch("two", {"two.txt": "2\n"})
        where = await workspaces.prepare(ground.order(upstreams={"u1": one, "u2": two}))
        assert where.conflicts == {}
        assert {"one.txt", "two.txt", "a.txt"} <= set(ground.names(where.base))
        write(where.path, {"mine.txt": "3\n"})
        assert [file.path for file in (await settled(workspaces, where)).files] == ["mine.txt"]

    async def test_an_upstream_head_that_has_the_target_is_the_base_itself(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        one = ground.branch("one", {"one.txt": "1\n"})
        two = ground.branch("two", {"two.txt": "2\n"}, start="one")
        where = await workspaces.prepare(ground.order(upstreams={"u1": one, "u2": two}))
        assert where.base == two

    async def test_a_head_that_the_target_has_changes_nothing(self, workspaces: Workspaces, ground: Ground) -> None:
        old = ground.ref("main")
        new = ground.commit({"c.txt": "later\n"})
        assert (await workspaces.prepare(ground.order(upstreams={"u1": old}))).base == new

    async def test_conflicting_heads_are_named_and_left_out(self, workspaces: Workspaces, ground: Ground) -> None:
        one = ground.branch("one", {"a.txt": "this\n"})
        two = ground.branch("two", {"a.txt": "that\n"})
        three = ground.branch("three", {"c.txt": "3\n"})
        where = await workspaces.prepare(ground.order(upstreams={"u1": one, "u2": two, "u3": three}))
        assert where.conflicts == {"u2": two}
        assert (where.path / "a.txt").read_text() == "this\n"
        assert (where.path / "c.txt").read_text() == "3\n"
        assert (await workspaces.prepare(ground.order(upstreams={"u1": one, "u2": two, "u3": three}))) == replace(
            where, fresh=False
        )

    async def test_a_part_of_a_conflicting_head_may_still_fit(self, workspaces: Workspaces, ground: Ground) -> None:
        base = ground.branch("base", {"c.txt": "3\n"})
        top = ground.branch("top", {"a.txt": "that\n"}, start="base")
        ground.commit({"a.txt": "this\n"})
        where = await workspaces.prepare(ground.order(upstreams={"low": base, "high": top}))
        assert where.conflicts == {"high": top}
        assert (where.path / "c.txt").exists()

    async def test_a_head_that_is_gone_is_named(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order(upstreams={"u1": "5" * 40}))
        assert where.conflicts == {"u1": "5" * 40}

    async def test_new_upstream_work_comes_into_a_branch_that_goes_on(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        first = await workspaces.prepare(ground.order())
        write(first.path, {"mine.txt": "1\n"})
        await settled(workspaces, first)
        one = ground.branch("one", {"one.txt": "1\n"})
        second = await workspaces.prepare(ground.order(number=2, upstreams={"u1": one}))
        assert second.conflicts == {}
        assert (second.path / "one.txt").exists()
        assert [file.path for file in (await settled(workspaces, second, number=2)).files] == ["mine.txt"]

    async def test_upstream_work_does_not_overwrite_what_is_uncommitted(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        first = await workspaces.prepare(ground.order())
        write(first.path, {"a.txt": "half done\n"})
        one = ground.branch("one", {"a.txt": "upstream\n"})
        second = await workspaces.prepare(ground.order(number=2, upstreams={"u1": one}))
        assert second.conflicts == {"u1": one}
        assert second.base == first.base
        assert (second.path / "a.txt").read_text() == "half done\n"

    async def test_a_target_that_is_only_on_the_remote_is_found(self, workspaces: Workspaces, ground: Ground) -> None:
        ground.git("update-ref", "refs/remotes/origin/next", "HEAD")
        assert (await workspaces.prepare(ground.order(target="next"))).base == ground.ref("main")

    async def test_a_target_that_is_nowhere_is_said(self, workspaces: Workspaces, ground: Ground) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            await workspaces.prepare(ground.order(target="nowhere"))

    async def test_an_empty_repository_gets_a_beginning_that_all_tasks_share(
        self, workspaces: Workspaces, tmp_path: Path
    ) -> None:
        empty = an_empty_repository(tmp_path / "empty")
        write(empty.path, {"draft.txt": "mine\n"})
        first = await workspaces.prepare(empty.order("t1"))
        second = await workspaces.prepare(empty.order("t2"))
        assert first.base == second.base
        assert [entry.name for entry in first.path.iterdir()] == [".git"]
        write(first.path, {"made.txt": "1\n"})
        assert (await settled(workspaces, first)).files == (change("made.txt", "created", 1),)
        assert empty.dirt() == "?? draft.txt"
        assert empty.ref("main") == ""

    async def test_a_bare_repository_gives_worktrees_too(
        self, workspaces: Workspaces, ground: Ground, tmp_path: Path
    ) -> None:
        bare = tmp_path / "bare.git"
        ground.git("clone", "-q", "--bare", str(ground.path), str(bare))
        where = await workspaces.prepare(ground.order(repository=bare))
        assert (where.path / "a.txt").exists()
        with pytest.raises(NotAllowed, match="no working tree"):
            await workspaces.prepare(ground.order("t2", repository=bare, mode="here"))

    @pytest.mark.parametrize("name", ["feature/x", "fix-🎉", "ünï/côde", "a.b/c_d-e", "users-can't-$(touch)"])
    async def test_any_branch_name_that_git_takes_is_taken(
        self, workspaces: Workspaces, ground: Ground, name: str
    ) -> None:
        where = await workspaces.prepare(ground.order(branch=name))
        assert ground.ref(f"refs/heads/{name}") == where.base
        write(where.path, {"c.txt": "3\n"})
        head = (await settled(workspaces, where)).head
        assert ground.ref(f"refs/heads/{name}") == head
        assert await workspaces.release(where, task_id="t1") == ""

    @pytest.mark.parametrize(
        "name",
        ["", "a\0b", "a\nupdate refs/heads/main", "a b", "-x", "a..b", "a/", "/a", "a.lock", "HEAD", "a//b", "@{"],
    )
    async def test_a_branch_name_that_git_would_refuse_is_refused_before_anything_happens(
        self, workspaces: Workspaces, ground: Ground, name: str
    ) -> None:
        before = await workspaces.refs(ground.path)
        with pytest.raises(InvalidInput, match="branch"):
            await workspaces.prepare(ground.order(branch=name))
        assert await workspaces.refs(ground.path) == before
        assert not ground.worktrees.exists()

    async def test_a_branch_that_is_checked_out_elsewhere_is_said_in_words(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        ground.git("switch", "-q", "-c", "stub/do-it/t1")
        with pytest.raises(GitError, match="already checked out"):
            await workspaces.prepare(ground.order())

    async def test_what_stands_in_the_way_is_left_alone(self, workspaces: Workspaces, ground: Ground) -> None:
        order = ground.order()
        write(order.path, {"precious.txt": "mine\n"})
        with pytest.raises(GitError, match="something else"):
            await workspaces.prepare(order)
        assert (order.path / "precious.txt").read_text() == "mine\n"

    async def test_a_worktree_that_git_has_forgotten_is_left_alone(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"precious.txt": "mine\n"})
        shutil.rmtree(ground.path / ".git" / "worktrees" / where.path.name)
        with pytest.raises(GitError, match="knows it no more"):
            await workspaces.prepare(ground.order(number=2))
        assert (where.path / "precious.txt").exists()

    async def test_sixteen_at_once_each_get_their_own(self, workspaces: Workspaces, ground: Ground) -> None:
        made: dict[str, Workspace] = {}

        async def one(task: str) -> None:
            made[task] = await workspaces.prepare(ground.order(task))

        with anyio.fail_after(DEADLINE):
            async with anyio.create_task_group() as group:
                for n in range(16):
                    group.start_soon(one, f"t{n}")
        assert len({where.path for where in made.values()}) == 16
        assert all((where.path / "a.txt").exists() for where in made.values())
        assert {where.base for where in made.values()} == {ground.ref("main")}

    async def test_the_same_order_twice_at_once_is_one_workspace(self, workspaces: Workspaces, ground: Ground) -> None:
        made: list[Workspace] = []

        async def one() -> None:
            made.append(await workspaces.prepare(ground.order()))

        with anyio.fail_after(DEADLINE):
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(one)
        assert made[0].base == made[1].base
        assert ground.dirt(made[0].path) == ""
