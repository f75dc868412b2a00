"""What every call of git keeps to, whatever surrounds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codefleet.core.errors import GitError
from codefleet.testing.workspaces import Ground, a_repository, isolate_git, settled, write
from codefleet.workspaces import GitWorkspaces, git


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    isolate_git(monkeypatch, tmp_path / "gitconfig")
    return a_repository(tmp_path / "ground")


def test_a_call_that_hangs_ends_with_all_that_it_started(ground: Ground) -> None:
    with pytest.raises(GitError, match=r"it did not end within 0\.3 seconds"):
        git.run(ground.path, "-c", "alias.hang=!sleep 1000", "hang", seconds=0.3)


def test_git_s_own_words_are_told(ground: Ground) -> None:
    with pytest.raises(GitError, match="git rev-parse: Needed a single revision"):
        git.run(ground.path, "rev-parse", "--verify", "nothing")


def test_a_git_that_is_killed_is_told(ground: Ground) -> None:
    with pytest.raises(GitError, match="killed by signal 9"):
        git.run(ground.path, "-c", "alias.die=!kill -9 $PPID", "die")


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="gone"):
        git.run(tmp_path / "gone", "version")


def test_a_machine_without_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="not installed"):
        git.run(tmp_path, "version")


def test_an_old_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"git": "#!/bin/sh\necho git version 2.37.9\n"})
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    git.check_version.cache_clear()
    try:
        with pytest.raises(GitError, match=r"2\.37\.9 is too old: 2\.38"):
            git.check_version()
    finally:
        git.check_version.cache_clear()


async def test_variables_of_another_git_do_not_lead_astray(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = a_repository(tmp_path / "other")
    for name, value in {
        "GIT_DIR": str(other.path / ".git"),
        "GIT_WORK_TREE": str(other.path),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_CONFIG_PARAMETERS": "'core.bare'='true'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": "/nowhere",
        "LC_ALL": "de_DE.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    workspaces = GitWorkspaces(tmp_path / "quarantine")
    where = await workspaces.prepare(ground.order())
    write(where.path, {"c.txt": "3\n"})
    made = await settled(workspaces, where)
    assert [file.path for file in made.files] == ["c.txt"]
    assert where.path.parent == ground.worktrees
    assert not (tmp_path / "index").exists()


async def test_settings_of_the_person_change_nothing(ground: Ground, tmp_path: Path) -> None:
    settings = {
        "status.showUntrackedFiles": "no",
        "status.renames": "copies",
        "diff.noprefix": "true",
        "diff.external": "/bin/false",
        "color.ui": "always",
        "core.fsmonitor": "/bin/false",
        "core.safecrlf": "true",
        "core.autocrlf": "input",
        "core.pager": "/bin/false",
        "checkout.defaultRemote": "x",
        "branch.autoSetupMerge": "always",
        "merge.ff": "false",
        "commit.gpgSign": "true",
        "core.quotePath": "true",
        "i18n.commitEncoding": "ISO-8859-1",
    }
    workspaces = GitWorkspaces(tmp_path / "quarantine")
    first = await workspaces.prepare(ground.order())
    for name, value in settings.items():
        ground.git("config", name, value)
    write(first.path, {"crlf.txt": "1\r\n2\r\n", "ü.txt": "1\n"})
    made = await workspaces.settle(first, task_id="t1", number=1, title="Ünï 🎉")
    assert sorted(file.path for file in made.files) == ["crlf.txt", "ü.txt"]
    patch = await workspaces.diff(ground.path, made.base, made.head)
    assert "+++ b/ü.txt" in patch
    assert "\x1b" not in patch
    second = await workspaces.prepare(ground.order("t2", upstreams={"t1": made.head}))
    assert second.base == made.head
