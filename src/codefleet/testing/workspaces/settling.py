"""The contract of what a run leaves: settled as a change set, or salvaged."""

from __future__ import annotations

import os
import shutil

import pytest

from codefleet.core.errors import GitError
from codefleet.ports import Workspaces
from codefleet.testing.workspaces.ground import Ground, Suite, change, settled, write

BIG = "x" * 10_000_001


class SettleContract(Suite):
    """Commit what is left, record the head, tell the change set."""

    async def test_what_is_left_is_committed_with_its_trailers(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"a.txt": None, "src/b.txt": "two\nthree\n", "new/c.txt": "1\n2\n"})
        made = await workspaces.settle(where, task_id="t1", number=1, title="Fix  the\nthing")
        assert made.files == (
            change("a.txt", "deleted", 0, 1),
            change("new/c.txt", "created", 2),
            change("src/b.txt", "modified", 1),
        )
        assert made.commits == (made.head,)
        assert (made.base, made.tree) == (where.base, ground.ref(f"{made.head}^{{tree}}"))
        assert made.head == ground.ref(where.branch) == ground.ref("refs/codefleet/heads/t1/1")
        body = ground.git("log", "-1", "--format=%B", made.head)
        assert body == "Fix the thing\n\nCodefleet-Task: t1\nCodefleet-Run: t1.1"
        assert ground.git("log", "-1", "--format=%an <%ae>", made.head) == "Ada <ada@example.org>"
        assert ground.dirt(where.path) == ""

    async def test_settling_again_changes_nothing(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        made = await settled(workspaces, where)
        refs = await workspaces.refs(ground.path)
        assert await settled(workspaces, where) == made
        assert await workspaces.refs(ground.path) == refs

    async def test_the_agent_s_commits_stay_as_they_are(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        one = ground.commit({"c.txt": "3\n"}, cwd=where.path)
        two = ground.commit({"d.txt": "4\n"}, cwd=where.path)
        made = await settled(workspaces, where)
        assert (made.head, made.commits) == (two, (one, two))

    async def test_a_run_without_a_change_says_so(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        made = await settled(workspaces, where)
        assert made.empty
        assert (made.head, made.commits, made.tree) == (where.base, (), ground.ref("main^{tree}"))

    async def test_what_the_agent_staged_and_what_it_did_not_are_one(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"a.txt": "staged\n", "c.txt": "staged\n"})
        ground.git("add", "-A", cwd=where.path)
        write(where.path, {"a.txt": "and more\n", "c.txt": None, "d.txt": "new\n"})
        made = await settled(workspaces, where)
        assert [file.path for file in made.files] == ["a.txt", "d.txt"]
        assert ground.git("show", f"{made.head}:a.txt") == "and more"

    async def test_odd_names_are_committed_as_they_are(self, workspaces: Workspaces, ground: Ground) -> None:
        names = ["with space", "new\nline", "ünï 🎉", "-dash", "*", "[x]", ":(top)", 'quo"te', "tab\there"]
        where = await workspaces.prepare(ground.order())
        write(where.path, dict.fromkeys(names, "x\n"))
        made = await settled(workspaces, where)
        assert sorted(file.path for file in made.files) == sorted(names)
        assert made.left_out == ()

    async def test_a_name_that_is_no_text_is_spelled_out(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        try:
            (where.path / os.fsdecode(b"odd\xff")).write_text("x\n")
        except OSError:
            pytest.skip("this file system takes only names that are text")
        kept = await workspaces.salvage(where, task_id="t1", number=1)
        assert kept is not None
        assert kept.files == ("odd\\xff",)
        assert (await settled(workspaces, where)).files == (change("odd\\xff", "created", 1),)
        assert ground.dirt(where.path) == ""

    async def test_symlinks_modes_and_binaries_are_kept(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        (where.path / "link").symlink_to("a.txt")
        (where.path / "a.txt").chmod(0o755)
        (where.path / "bin").write_bytes(b"\0\1\2")
        made = await settled(workspaces, where)
        assert made.files == (change("a.txt", "modified"), change("bin", "created"), change("link", "created", 1))

    async def test_a_folder_in_place_of_a_file_and_the_other_way(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        shutil.rmtree(where.path / "src")
        write(where.path, {"a.txt": None, "src": "a file now\n"})
        write(where.path, {"a.txt/inside": "a folder now\n"})
        made = await settled(workspaces, where)
        assert sorted(ground.names(made.head)) == ["a.txt/inside", "src"]

    async def test_what_is_ignored_stays_out(self, workspaces: Workspaces, ground: Ground) -> None:
        ground.commit({".gitignore": "build/\n"})
        where = await workspaces.prepare(ground.order())
        write(where.path, {"build/x": "1\n"})
        assert (await settled(workspaces, where)).empty

    @pytest.mark.parametrize(
        ("files", "left"),
        [
            ({".env": "KEY=1\n", "sub/.env.local": "KEY=1\n"}, (".env", "sub/.env.local")),
            ({"id_rsa": "x\n", "tls.pem": "-----BEGIN PRIVATE KEY-----\n"}, ("id_rsa", "tls.pem")),
            ({"huge.bin": BIG}, ("huge.bin",)),
            ({"node_modules/a/b.js": "1\n", "web/node_modules/c.js": "1\n"}, ("node_modules/", "web/node_modules/")),
            ({"env/pyvenv.cfg": "1\n", "env/bin/python": "1\n"}, ("env/",)),
            ({"out/CACHEDIR.TAG": "Signature\n", "out/x": "1\n"}, ("out/",)),
        ],
        ids=["environment", "keys", "huge", "node_modules", "virtualenv", "cache"],
    )
    async def test_secrets_and_bulk_are_left_out_and_named(
        self, workspaces: Workspaces, ground: Ground, files: dict[str, str], left: tuple[str, ...]
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {**files, "work.txt": "1\n"})
        made = await settled(workspaces, where)
        assert [file.path for file in made.files] == ["work.txt"]
        assert made.left_out == left
        assert all((where.path / name).exists() for name in files)

    async def test_what_only_looks_like_a_secret_is_committed(self, workspaces: Workspaces, ground: Ground) -> None:
        files = {".env.example": "KEY=\n", "ca.pem": "-----BEGIN CERTIFICATE-----\n", "environment.py": "1\n"}
        where = await workspaces.prepare(ground.order())
        write(where.path, files)
        made = await settled(workspaces, where)
        assert sorted(file.path for file in made.files) == sorted(files)

    async def test_a_secret_that_the_project_tracks_is_its_own_affair(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        ground.commit({".env": "KEY=1\n"})
        where = await workspaces.prepare(ground.order())
        write(where.path, {".env": "KEY=2\n"})
        assert (await settled(workspaces, where)).files == (change(".env", "modified", 1, 1),)

    async def test_other_repositories_inside_are_left_out_and_named(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        for name in ("empty", "full"):
            write(where.path / name, {"x.txt": "1\n"})
            ground.git("init", "-q", cwd=where.path / name)
        ground.commit({}, cwd=where.path / "full")
        write(where.path, {"work.txt": "1\n"})
        made = await settled(workspaces, where)
        assert [file.path for file in made.files] == ["work.txt"]
        assert made.left_out == ("empty/", "full/")

    async def test_no_hook_and_no_signing_of_the_repository_runs(self, workspaces: Workspaces, ground: Ground) -> None:
        hooks = ground.path / ".git" / "hooks"
        names = (
            "pre-commit",
            "commit-msg",
            "post-commit",
            "reference-transaction",
            "post-checkout",
            "post-index-change",
        )
        write(hooks, dict.fromkeys(names, f"#!/bin/sh\ntouch '{ground.path}/ran'\nexit 1\n"))
        for name in names:
            (hooks / name).chmod(0o755)
        ground.git("config", "commit.gpgSign", "true")
        ground.git("config", "gpg.program", "/bin/false")
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        assert not (await settled(workspaces, where)).empty
        assert not (ground.path / "ran").exists()

    async def test_a_merge_in_progress_is_committed_as_it_stands(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.commit({"a.txt": "ours\n"}, cwd=where.path)
        theirs = ground.commit({"a.txt": "theirs\n"})
        assert ground.tried("merge", "main", cwd=where.path).returncode == 1
        made = await settled(workspaces, where)
        assert "<<<<<<<" in ground.git("show", f"{made.head}:a.txt")
        assert theirs in ground.git("log", "-1", "--format=%P", made.head)
        assert ground.git("status", cwd=where.path).count("merging") == 0
        assert ground.dirt(where.path) == ""

    async def test_a_merge_in_which_one_side_deleted_is_committed_as_it_stands(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        ground.commit({"a.txt": None, "src/b.txt": "ours\n"}, cwd=where.path)
        ground.commit({"a.txt": "theirs\n", "src/b.txt": None})
        assert ground.tried("merge", "main", cwd=where.path).returncode == 1
        (where.path / "a.txt").unlink()
        made = await settled(workspaces, where)
        assert ground.names(made.head) == ["src/b.txt"]
        assert ground.dirt(where.path) == ""

    async def test_a_rebase_that_was_cut_off_is_taken_back_and_kept(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        mine = ground.commit({"a.txt": "ours\n"}, cwd=where.path)
        ground.commit({"a.txt": "theirs\n"})
        assert ground.tried("rebase", "main", cwd=where.path).returncode == 1
        write(where.path, {"more.txt": "during the rebase\n"})
        made = await settled(workspaces, where)
        assert (made.commits[0], made.head) == (mine, ground.ref(where.branch))
        assert ground.git("show", f"{made.head}:a.txt") == "ours"
        assert "more.txt" in ground.names(made.head)
        assert "on branch" in ground.git("status", cwd=where.path).lower()
        assert "refs/codefleet/salvage/t1/1" in made.notes[0]
        assert "<<<<<<<" in ground.git("show", "refs/codefleet/salvage/t1/1:a.txt")

    async def test_commits_on_a_detached_head_become_the_branch_s(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("checkout", "-q", "--detach", cwd=where.path)
        mine = ground.commit({"c.txt": "3\n"}, cwd=where.path)
        write(where.path, {"d.txt": "4\n"})
        made = await settled(workspaces, where)
        assert made.commits[0] == mine
        assert [file.path for file in made.files] == ["c.txt", "d.txt"]
        assert ground.git("branch", "--show-current", cwd=where.path) == where.branch

    async def test_somebody_else_s_commit_checked_out_is_not_taken_for_the_run_s(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        ground.commit({"theirs.txt": "1\n"})
        ground.git("checkout", "-q", "--detach", "main", cwd=where.path)
        write(where.path, {"a.txt": "edited there\n", "new.txt": "1\n"})
        made = await settled(workspaces, where)
        assert made.files == (change("new.txt", "created", 1),)
        assert ground.git("show", "refs/codefleet/salvage/t1/1:a.txt") == "edited there"

    async def test_another_branch_in_the_worktree_is_said_and_nothing_is_lost(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("switch", "-q", "-c", "other", cwd=where.path)
        write(where.path, {"c.txt": "3\n"})
        with pytest.raises(GitError, match=r"'other'.*refs/codefleet/salvage/t1/1"):
            await settled(workspaces, where)
        assert "c.txt" in ground.names("refs/codefleet/salvage/t1/1")
        assert (where.path / "c.txt").exists()

    async def test_a_worktree_that_is_gone_is_said(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        shutil.rmtree(where.path)
        with pytest.raises(GitError, match="gone"):
            await settled(workspaces, where)

    async def test_a_repository_that_was_moved_is_said_and_taken_up_again(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        moved = ground.path.with_name("moved")
        ground.path.rename(moved)
        with pytest.raises(GitError, match="no git repository") as told:
            await settled(workspaces, where)
        assert "moved" in told.value.hint
        again = await workspaces.prepare(ground.order(repository=moved))
        assert not again.fresh
        assert [file.path for file in (await settled(workspaces, again)).files] == ["c.txt"]

    async def test_a_broken_index_is_made_anew(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        index = ground.path / ".git" / "worktrees" / where.path.name / "index"
        index.write_bytes(b"nonsense")
        assert [file.path for file in (await settled(workspaces, where)).files] == ["c.txt"]
        index.unlink()
        write(where.path, {"d.txt": "4\n"})
        assert [file.path for file in (await settled(workspaces, where)).files] == ["c.txt", "d.txt"]


class SalvageContract(Suite):
    """Everything unsaved as a commit beside."""

    async def test_what_is_unsaved_becomes_a_commit_and_the_workspace_stays(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"a.txt": "changed\n", "staged.txt": "1\n", ".env": "KEY=1\n"})
        ground.git("add", "staged.txt", cwd=where.path)
        write(where.path, {"loose.txt": "2\n"})
        dirt, index = ground.dirt(where.path), ground.git("ls-files", "-s", cwd=where.path)
        kept = await workspaces.salvage(where, task_id="t1", number=1)
        assert kept is not None
        assert (kept.ref, kept.commit) == ("refs/codefleet/salvage/t1/1", ground.ref("refs/codefleet/salvage/t1/1"))
        assert sorted(kept.files) == ["a.txt", "loose.txt", "staged.txt"]
        assert kept.left_out == (".env",)
        assert ground.ref(f"{kept.commit}^") == ground.ref(where.branch) == where.base
        assert sorted(ground.names(kept.commit)) == ["a.txt", "loose.txt", "src/b.txt", "staged.txt"]
        assert (ground.dirt(where.path), ground.git("ls-files", "-s", cwd=where.path)) == (dirt, index)

    async def test_nothing_unsaved_is_nothing_salvaged(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.commit({"c.txt": "3\n"}, cwd=where.path)
        assert await workspaces.salvage(where, task_id="t1", number=1) is None
        shutil.rmtree(where.path)
        assert await workspaces.salvage(where, task_id="t1", number=1) is None

    async def test_salvaging_the_same_again_is_the_same(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "3\n"})
        kept = await workspaces.salvage(where, task_id="t1", number=1)
        assert await workspaces.salvage(where, task_id="t1", number=1) == kept

    async def test_a_second_salvage_keeps_the_first(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"c.txt": "first\n"})
        one = await workspaces.salvage(where, task_id="t1", number=1)
        write(where.path, {"c.txt": "second\n"})
        two = await workspaces.salvage(where, task_id="t1", number=1)
        assert one is not None
        assert two is not None
        assert await workspaces.contains(ground.path, two.commit, one.commit)
        assert ground.git("show", f"{two.commit}:c.txt") == "second"
        assert await workspaces.salvage(where, task_id="t1", number=1) == two

    async def test_commits_that_no_branch_holds_are_unsaved(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("checkout", "-q", "--detach", cwd=where.path)
        mine = ground.commit({"c.txt": "3\n"}, cwd=where.path)
        kept = await workspaces.salvage(where, task_id="t1", number=1)
        assert kept is not None
        assert await workspaces.contains(ground.path, kept.commit, mine)

    async def test_a_merge_in_progress_is_kept_as_it_is(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.commit({"a.txt": "ours\n"}, cwd=where.path)
        ground.commit({"a.txt": "theirs\n"})
        assert ground.tried("merge", "main", cwd=where.path).returncode == 1
        kept = await workspaces.salvage(where, task_id="t1", number=1)
        assert kept is not None
        assert "<<<<<<<" in ground.git("show", f"{kept.commit}:a.txt")
        assert "UU a.txt" in ground.dirt(where.path)

    async def test_what_was_staged_in_a_worktree_that_somebody_removed_is_kept(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        write(where.path, {"staged.txt": "1\n"})
        ground.git("add", "-A", cwd=where.path)
        shutil.rmtree(where.path)
        again = await workspaces.prepare(ground.order(number=2))
        assert again.fresh
        assert "staged.txt" in ground.names("refs/codefleet/salvage/t1/2")

    async def test_detached_commits_of_a_worktree_that_somebody_removed_are_kept(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("checkout", "-q", "--detach", cwd=where.path)
        mine = ground.commit({"c.txt": "3\n"}, cwd=where.path)
        shutil.rmtree(where.path)
        await workspaces.prepare(ground.order(number=2))
        assert await workspaces.contains(ground.path, "refs/codefleet/salvage/t1/2", mine)

    async def test_a_detached_worktree_is_put_back_on_its_branch_for_the_next_run(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        mine = ground.commit({"a.txt": "ours\n"}, cwd=where.path)
        ground.commit({"a.txt": "theirs\n"})
        assert ground.tried("rebase", "main", cwd=where.path).returncode == 1
        again = await workspaces.prepare(ground.order(number=2))
        assert ground.git("branch", "--show-current", cwd=again.path) == again.branch
        assert ground.ref("HEAD") != ground.ref(again.branch) == mine
        assert "<<<<<<<" in ground.git("show", "refs/codefleet/salvage/t1/2:a.txt")

    async def test_a_run_that_is_under_way_is_not_disturbed_by_preparing_it_again(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        ground.commit({"a.txt": "ours\n"}, cwd=where.path)
        ground.commit({"a.txt": "theirs\n"})
        assert ground.tried("rebase", "main", cwd=where.path).returncode == 1
        dirt = ground.dirt(where.path)
        await workspaces.prepare(ground.order())
        assert ground.dirt(where.path) == dirt
        assert "rebase in progress" in ground.git("status", cwd=where.path)

    async def test_a_worktree_that_a_person_switched_is_said_before_a_run(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("switch", "-q", "-c", "mine", cwd=where.path)
        with pytest.raises(GitError, match="'mine'"):
            await workspaces.prepare(ground.order(number=2))
