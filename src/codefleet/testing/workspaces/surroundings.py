"""The contract of what surrounds a workspace: credential files, git's variables, refs, excludes, the folder itself."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from codefleet.core.errors import InvalidInput
from codefleet.ports import ForeignMove, Workspaces
from codefleet.testing.workspaces.ground import Ground, Suite, a_repository, change, settled, write


class CopyContract(Suite):
    """Credential files."""

    async def test_what_matches_is_copied_with_its_mode_and_never_committed(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        write(ground.path, {".env": "KEY=1\n", "conf/a.local": "1\n", "conf/b.txt": "2\n"})
        (ground.path / ".env").chmod(0o600)
        where = await workspaces.prepare(ground.order())
        copied = await workspaces.copy_files(ground.path, where.path, [".env", "conf/*.local", "none/*"])
        assert sorted(copied) == [".env", "conf/a.local"]
        assert (where.path / ".env").read_text() == "KEY=1\n"
        assert stat.S_IMODE((where.path / ".env").stat().st_mode) == 0o600
        assert ground.dirt(where.path) == ""
        assert (await settled(workspaces, where)).empty

    async def test_copies_stay_out_of_commits_even_when_they_are_staged(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        write(ground.path, {"conf/token.txt": "secret\n"})
        where = await workspaces.prepare(ground.order())
        await workspaces.copy_files(ground.path, where.path, ["conf/token.txt"])
        write(where.path, {"c.txt": "3\n"})
        ground.git("add", "-f", "conf/token.txt", cwd=where.path)
        made = await settled(workspaces, where)
        assert [file.path for file in made.files] == ["c.txt"]
        assert made.left_out == ("conf/token.txt",)

    async def test_copying_again_brings_what_changed(self, workspaces: Workspaces, ground: Ground) -> None:
        write(ground.path, {".env": "KEY=1\n"})
        where = await workspaces.prepare(ground.order())
        await workspaces.copy_files(ground.path, where.path, [".env"])
        write(ground.path, {".env": "KEY=2\n"})
        await workspaces.copy_files(ground.path, where.path, [".env"])
        assert (where.path / ".env").read_text() == "KEY=2\n"

    async def test_a_folder_brings_its_files(self, workspaces: Workspaces, ground: Ground) -> None:
        write(ground.path, {"certs/x/one": "1", "certs/two": "2"})
        where = await workspaces.prepare(ground.order())
        assert sorted(await workspaces.copy_files(ground.path, where.path, ["certs"])) == ["certs/two", "certs/x/one"]

    @pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "a/../../x", "~/.ssh/id_rsa", "", "a\0b"])
    async def test_a_pattern_that_leaves_the_project_is_refused(
        self, workspaces: Workspaces, ground: Ground, pattern: str
    ) -> None:
        where = await workspaces.prepare(ground.order())
        with pytest.raises(InvalidInput, match="pattern"):
            await workspaces.copy_files(ground.path, where.path, [pattern])

    async def test_no_symlink_leads_out_of_the_project_or_of_the_workspace(
        self, workspaces: Workspaces, ground: Ground, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        write(outside, {"secret": "theirs\n", "kept": "theirs\n"})
        (ground.path / "link").symlink_to(outside / "secret")
        (ground.path / "way").symlink_to(outside)
        write(ground.path, {"conf/kept": "ours\n"})
        where = await workspaces.prepare(ground.order())
        (where.path / "conf").symlink_to(outside)
        assert list(await workspaces.copy_files(ground.path, where.path, ["link", "way/*", "**/*", "conf/kept"])) == []
        assert (outside / "kept").read_text() == "theirs\n"

    async def test_what_the_project_tracks_is_not_overwritten(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        write(ground.path, {"a.txt": "the person's own state\n"})
        assert list(await workspaces.copy_files(ground.path, where.path, ["*.txt"])) == []
        assert (where.path / "a.txt").read_text() == "one\n"


class EnvironmentContract(Suite):
    """Git's variables for a child."""

    async def test_commits_on_the_own_branch_work_under_the_repository_s_identity(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        ground.git("config", "user.name", "Grace")
        where = await workspaces.prepare(ground.order())
        env = workspaces.environment(where)
        write(where.path, {"c.txt": "3\n"})
        ground.git("add", "-A", cwd=where.path, env=env)
        ground.git("commit", "-q", "-m", "mine", cwd=where.path, env=env)
        assert ground.git("log", "-1", "--format=%an %ae %cn", where.branch) == "Grace ada@example.org Grace"
        assert env["GIT_TERMINAL_PROMPT"] == "0"

    async def test_without_an_identity_the_fleet_s_own_is_used(
        self, workspaces: Workspaces, ground: Ground, tmp_path: Path
    ) -> None:
        (tmp_path / "gitconfig").write_text("")
        where = await workspaces.prepare(ground.order())
        env = workspaces.environment(where)
        write(where.path, {"c.txt": "3\n"})
        ground.git("add", "-A", cwd=where.path, env=env)
        ground.git("commit", "-q", "-m", "mine", cwd=where.path, env=env)
        write(where.path, {"d.txt": "4\n"})
        await settled(workspaces, where)
        names = ground.git("log", "-2", "--format=%an <%ae>", where.branch).split("\n")
        assert names == ["CodeFleet <codefleet@localhost>"] * 2

    @pytest.mark.parametrize(
        "args",
        [
            ("update-ref", "refs/heads/main", "HEAD"),
            ("branch", "-f", "other", "HEAD~0"),
            ("branch", "-D", "other"),
            ("tag", "v1"),
            ("update-ref", "refs/codefleet/lines/main", "HEAD"),
            ("stash", "push", "-u"),
        ],
    )
    async def test_moves_of_other_refs_are_refused(
        self, workspaces: Workspaces, ground: Ground, args: tuple[str, ...]
    ) -> None:
        ground.git("branch", "other")
        where = await workspaces.prepare(ground.order())
        env = workspaces.environment(where)
        write(where.path, {"a.txt": "changed\n", "new.txt": "new\n"})
        ground.git("commit", "-q", "-a", "-m", "mine", cwd=where.path, env=env)
        write(where.path, {"a.txt": "again\n"})
        before = await workspaces.refs(ground.path)
        assert ground.tried(*args, cwd=where.path, env=env).returncode != 0
        assert await workspaces.refs(ground.path) == before
        assert (where.path / "a.txt").read_text() == "again\n"
        assert (where.path / "new.txt").exists()

    async def test_the_guard_holds_in_the_person_s_checkout_too(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        done = ground.tried(
            "commit", "-q", "--allow-empty", "-m", "x", cwd=ground.path, env=workspaces.environment(where)
        )
        assert done.returncode != 0
        assert "main" in done.stderr

    async def test_the_repository_s_own_hooks_run(self, workspaces: Workspaces, ground: Ground) -> None:
        hooks = ground.path / ".git" / "hooks"
        write(
            hooks,
            {"pre-commit": "#!/bin/sh\necho ran >>.hooked\n", "reference-transaction": "#!/bin/sh\ncat >>.moved\n"},
        )
        for hook in ("pre-commit", "reference-transaction"):
            (hooks / hook).chmod(0o755)
        where = await workspaces.prepare(ground.order())
        assert not (where.path / ".moved").exists()
        env = workspaces.environment(where)
        ground.git("commit", "-q", "--allow-empty", "-m", "mine", cwd=where.path, env=env)
        assert (where.path / ".hooked").read_text() == "ran\n"
        assert f"refs/heads/{where.branch}" in (where.path / ".moved").read_text()

    async def test_hooks_in_a_folder_of_the_working_tree_run(self, workspaces: Workspaces, ground: Ground) -> None:
        ground.git("config", "core.hooksPath", ".hooks")
        write(ground.path, {".hooks/commit-msg": '#!/bin/sh\necho checked >>"$1"\n'})
        (ground.path / ".hooks" / "commit-msg").chmod(0o755)
        ground.commit({}, "hooks")
        where = await workspaces.prepare(ground.order())
        env = workspaces.environment(where)
        ground.git("commit", "-q", "--allow-empty", "-m", "mine", cwd=where.path, env=env)
        assert "checked" in ground.git("log", "-1", "--format=%B", where.branch)

    async def test_other_repositories_are_free_and_their_hooks_run(
        self, workspaces: Workspaces, ground: Ground, tmp_path: Path
    ) -> None:
        env = workspaces.environment(await workspaces.prepare(ground.order()))
        other = a_repository(tmp_path / "other")
        write(other.path / ".git" / "hooks", {"pre-commit": "#!/bin/sh\necho ran >.hooked\n"})
        (other.path / ".git" / "hooks" / "pre-commit").chmod(0o755)
        other.git("commit", "-q", "--allow-empty", "-m", "x", env=env)
        other.git("tag", "v1", env=env)
        assert (other.path / ".hooked").exists()

    async def test_a_folder_without_git_needs_no_identity(
        self, workspaces: Workspaces, ground: Ground, tmp_path: Path
    ) -> None:
        folder = tmp_path / "plain"
        folder.mkdir()
        where = await workspaces.prepare(ground.order(repository=folder))
        assert dict(workspaces.environment(where)) == {"GIT_TERMINAL_PROMPT": "0"}


class RefsContract(Suite):
    """The audit of refs, and the exclude file."""

    async def test_a_foreign_move_is_found_and_own_ones_are_not(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order())
        ground.git("tag", "gone")
        before = await workspaces.refs(ground.path)
        old, new = ground.ref("main"), ground.commit({"c.txt": "3\n"})
        ground.git("tag", "-d", "gone")
        ground.git("branch", "extra")
        write(where.path, {"mine.txt": "1\n"})
        await settled(workspaces, where)
        moved = await workspaces.audit(ground.path, before, [f"refs/heads/{where.branch}"])
        assert list(moved) == [
            ForeignMove(ref="refs/heads/extra", before="", after=new),
            ForeignMove(ref="refs/heads/main", before=old, after=new),
            ForeignMove(ref="refs/tags/gone", before=old, after=""),
        ]
        assert list(await workspaces.audit(ground.path, before, ["refs/heads/*", "refs/tags/*"])) == []

    async def test_lines_are_excluded_once(self, workspaces: Workspaces, ground: Ground) -> None:
        file = ground.path / ".git" / "info" / "exclude"
        file.write_text("mine")
        await workspaces.exclude(ground.path, ["/.codefleet/run/", "*.tmp"])
        await workspaces.exclude(ground.path, ["*.tmp"])
        assert file.read_text() == "mine\n/.codefleet/run/\n*.tmp\n"
        where = await workspaces.prepare(ground.order())
        write(where.path, {"x.tmp": "", ".codefleet/run/prompt.md": ""})
        assert ground.dirt(where.path) == ""

    @pytest.mark.parametrize("pattern", ["", "a\nb", "a\0b"])
    async def test_a_pattern_that_is_none_is_refused(
        self, workspaces: Workspaces, ground: Ground, pattern: str
    ) -> None:
        with pytest.raises(InvalidInput, match="pattern"):
            await workspaces.exclude(ground.path, [pattern])


class HereContract(Suite):
    """The folder itself as the workspace."""

    async def test_a_folder_without_git_is_worked_on_in_place(
        self, workspaces: Workspaces, ground: Ground, tmp_path: Path
    ) -> None:
        folder = tmp_path / "plain"
        write(folder, {"a.txt": "one\n"})
        where = await workspaces.prepare(ground.order(repository=folder))
        assert (where.path, where.git, where.base) == (folder, False, "")
        made = await settled(workspaces, where)
        assert (made.base, made.head, made.tree, made.empty) == ("", "", "", True)
        assert await workspaces.salvage(where, task_id="t1", number=1) is None
        assert await workspaces.release(where, task_id="t1") == ""
        assert (folder / "a.txt").exists()
        assert dict(await workspaces.refs(folder)) == {}

    async def test_here_counts_the_run_s_changes_and_not_the_person_s(
        self, workspaces: Workspaces, ground: Ground
    ) -> None:
        write(ground.path, {"mine.txt": "half\n", "a.txt": "mine\n"})
        where = await workspaces.prepare(ground.order(mode="here"))
        assert (where.path, where.git, where.branch, where.fresh) == (ground.path, True, "main", False)
        write(where.path, {"theirs.txt": "1\n", "mine.txt": "half\nand more\n"})
        dirt, head = ground.dirt(), ground.ref("HEAD")
        made = await settled(workspaces, where)
        assert made.files == (change("mine.txt", "modified", 1), change("theirs.txt", "created", 1))
        assert (ground.dirt(), ground.ref("HEAD"), ground.ref("main")) == (dirt, head, head)
        assert ground.ref("refs/codefleet/heads/t1/1") == made.head
        assert await settled(workspaces, where) == made

    async def test_here_sees_the_commits_of_the_agent(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order(mode="here"))
        head = ground.commit({"c.txt": "3\n"})
        made = await settled(workspaces, where)
        assert (made.head, made.commits, made.files) == (head, (head,), (change("c.txt", "created", 1),))

    async def test_here_prepared_again_keeps_its_base(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order(mode="here"))
        write(where.path, {"c.txt": "3\n"})
        assert await workspaces.prepare(ground.order(mode="here")) == where

    async def test_here_works_in_an_empty_repository(self, workspaces: Workspaces, tmp_path: Path) -> None:
        empty = a_repository(tmp_path / "empty")
        empty.git("update-ref", "-d", "HEAD")
        empty.git("rm", "-rq", "--cached", ".")
        (empty.path / "a.txt").unlink()
        where = await workspaces.prepare(empty.order(mode="here"))
        write(where.path, {"c.txt": "3\n"})
        assert (await settled(workspaces, where)).files == (change("c.txt", "created", 1),)
        assert empty.ref("HEAD") == ""

    async def test_releasing_the_folder_itself_leaves_it(self, workspaces: Workspaces, ground: Ground) -> None:
        where = await workspaces.prepare(ground.order(mode="here"))
        assert await workspaces.release(where, task_id="t1") == ""
        assert (ground.path / "a.txt").exists()


class SurroundingsContract(CopyContract, EnvironmentContract, RefsContract, HereContract):
    """All of these."""
