"""A repository to try workspaces on, judged by what git itself says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from codefleet.core.model import FileChange
from codefleet.ports import ChangeSet, Workspace, WorkspaceOrder, Workspaces

#: Nothing here takes long: this only guards against hanging.
DEADLINE = 60


@dataclass(frozen=True)
class Ground:
    """A repository to try things on, and the place where its worktrees go."""

    path: Path
    worktrees: Path

    def git(self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """What git says; it must succeed."""
        done = self.tried(*args, cwd=cwd, env=env)
        assert done.returncode == 0, f"git {args}: {done.stderr}"
        return done.stdout.strip()

    def tried(
        self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """What becomes of a call of git that may fail."""
        variables = {**os.environ, **(env or {})}
        return subprocess.run(
            ["git", *args], cwd=cwd or self.path, env=variables, capture_output=True, text=True, check=False
        )

    def commit(self, files: Mapping[str, str | None], message: str = "work", cwd: Path | None = None) -> str:
        """Write (or with None delete) files and commit everything; the new commit."""
        write(cwd or self.path, files)
        self.git("add", "-A", cwd=cwd)
        self.git("commit", "-q", "--allow-empty", "-m", message, cwd=cwd)
        return self.git("rev-parse", "HEAD", cwd=cwd)

    def branch(self, name: str, files: Mapping[str, str | None], start: str = "main") -> str:
        """A branch with one commit, made in a worktree of its own that is gone again."""
        aside = self.worktrees.parent / "aside"
        self.git("worktree", "add", "-q", "-b", name, str(aside), start)
        commit = self.commit(files, f"on {name}", cwd=aside)
        self.git("worktree", "remove", "--force", str(aside))
        return commit

    def order(self, task: str = "t1", number: int = 1, **given: object) -> WorkspaceOrder:
        """An order for a run of a task."""
        order = WorkspaceOrder(
            repository=self.path,
            task_id=task,
            number=number,
            branch=f"stub/do-it/{task}",
            target="main",
            path=self.worktrees / f"stub-do-it-{task}",
        )
        return replace(order, **given)  # type: ignore[arg-type]

    def ref(self, name: str) -> str:
        """Where a ref points; empty when it is not there."""
        return self.tried("rev-parse", "-q", "--verify", name).stdout.strip()

    def names(self, commit: str) -> list[str]:
        """The files of a commit."""
        return self.git("ls-tree", "-r", "--name-only", "-z", commit).strip("\0").split("\0")

    def dirt(self, cwd: Path | None = None) -> str:
        return self.git("status", "--porcelain", "-uall", cwd=cwd)


def write(folder: Path, files: Mapping[str, str | None]) -> None:
    """Write files, or with None delete them."""
    for name, text in files.items():
        file = folder / name
        if text is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def a_repository(folder: Path, files: Mapping[str, str | None] | None = None) -> Ground:
    """A repository with one commit on main."""
    ground = an_empty_repository(folder)
    ground.commit(files or {"a.txt": "one\n", "src/b.txt": "two\n"}, "first")
    return ground


def an_empty_repository(folder: Path) -> Ground:
    repository = folder / "project"
    repository.mkdir(parents=True)
    ground = Ground(repository.resolve(), folder.resolve() / "worktrees")
    ground.git("init", "-q", "-b", "main")
    return ground


def isolate_git(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    """Only this file configures git: nothing of the machine's or the person's shows."""
    config.write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


def change(path: str, kind: str, added: int = 0, removed: int = 0) -> FileChange:
    return FileChange(path=path, change_type=kind, lines_added=added, lines_removed=removed)


async def settled(workspaces: Workspaces, where: Workspace, number: int = 1, task: str = "t1") -> ChangeSet:
    return await workspaces.settle(where, task_id=task, number=number, title="Do it")


class Suite:
    """What every part of the contract stands on."""

    @pytest.fixture(autouse=True)
    def gitconfig(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        isolate_git(monkeypatch, tmp_path / "gitconfig")

    @pytest.fixture
    def ground(self, tmp_path: Path, gitconfig: None) -> Ground:  # noqa: ARG002  it must come first
        return a_repository(tmp_path / "ground")

    @pytest.fixture
    def workspaces(self) -> Workspaces:
        """The adapter that is held to the contract."""
        raise NotImplementedError
