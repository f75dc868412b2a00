"""The adapter: every promise of the port, done in worker threads by plain blocking code."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from codefleet.core.errors import GitError, InvalidInput, NotAllowed
from codefleet.ports import ChangeSet, ForeignMove, Repository, Salvaged, Workspace, WorkspaceOrder
from codefleet.workspaces import (
    customs,
    files,
    git,
    guard,
    layout,
    merging,
    prepare,
    probe,
    proof,
    reading,
    refs,
    release,
    salvage,
    settle,
)
from codefleet.workspaces.layout import Tree

T = TypeVar("T")
P = ParamSpec("P")

#: More at once only wait for each other's disk.
_AT_ONCE = 32


class GitWorkspaces:
    """Workspaces on git worktrees, or on a folder as it is. What no commit may hold and a removed worktree would take
    with it moves to the quarantine."""

    def __init__(self, quarantine: Path) -> None:
        self._quarantine = quarantine
        self._threads = anyio.CapacityLimiter(_AT_ONCE)
        self._customs = customs.Known()

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def checked() -> T:
            git.check_version()
            try:
                return work(*args, **kwargs)
            except OSError as error:
                raise _refused(error) from error

        return await anyio.to_thread.run_sync(checked, limiter=self._threads)

    async def probe(self, path: Path) -> Repository:
        return await self._run(probe.at, path)

    async def prepare(self, order: WorkspaceOrder) -> Workspace:
        return await self._run(self._prepare, order)

    def _prepare(self, order: WorkspaceOrder) -> Workspace:
        tree = layout.tree_at(order.repository.resolve())
        if tree is None:
            return Workspace(path=order.repository, repository=order.repository, git=False, fresh=False)
        if order.mode == "here":
            if layout.is_bare(tree):
                raise NotAllowed(f"{tree.path} has no working tree.", hint='Use `workspace.mode = "worktree"`.')
            return prepare.here(order, tree)
        return prepare.worktree(order, tree)

    async def copy_files(self, repository: Path, workspace: Path, patterns: Sequence[str]) -> Sequence[str]:
        return await self._run(self._copy, repository, workspace, patterns)

    def _copy(self, repository: Path, workspace: Path, patterns: Sequence[str]) -> Sequence[str]:
        source = repository.resolve()
        if not patterns or source == workspace.resolve():
            return ()
        return tuple(files.copy(source, _standing(workspace), patterns))

    def environment(self, workspace: Workspace) -> Mapping[str, str]:
        if not workspace.git:
            return {"GIT_TERMINAL_PROMPT": "0"}
        tree = _standing(workspace.path)
        own = refs.branch(workspace.branch) if workspace.branch else ""
        return guard.variables(tree, own, self._customs.of(tree))

    async def refs(self, repository: Path) -> Mapping[str, str]:
        return await self._run(refs.all_refs, repository) if layout.tree_at(repository) is not None else {}

    async def audit(self, repository: Path, before: Mapping[str, str], own: Sequence[str]) -> Sequence[ForeignMove]:
        return refs.foreign(before, await self.refs(repository), own)

    async def settle(self, workspace: Workspace, *, task_id: str, number: int, title: str) -> ChangeSet:
        if not workspace.git:
            return ChangeSet(base="", head="", tree="")
        return await self._run(self._settle, workspace, task_id, number, title)

    def _settle(self, workspace: Workspace, task: str, number: int, title: str) -> ChangeSet:
        tree = _standing(workspace.path)
        do = settle.here if _is_here(workspace) else settle.worktree
        return do(workspace, tree, task, number, title, self._customs.of(tree).who)

    async def salvage(self, workspace: Workspace, *, task_id: str, number: int) -> Salvaged | None:
        if not workspace.git:
            return None
        return await self._run(self._salvage, workspace, task_id, number)

    def _salvage(self, workspace: Workspace, task: str, number: int) -> Salvaged | None:
        tree = layout.tree_at(workspace.path.resolve())
        if tree is None:
            return None
        return salvage.of(tree, task, number, self._customs.of(tree).who)

    async def proof(self, repository: Path, path: Path, commit: str, caches: Sequence[str]) -> Path:
        return await self._run(lambda: proof.at(_standing(repository), path, commit, caches))

    async def release(self, workspace: Workspace, *, task_id: str) -> str:
        if not workspace.git or _is_here(workspace):
            return ""
        return await self._run(self._release, workspace, task_id)

    def _release(self, workspace: Workspace, task: str) -> str:
        quarantine = self._quarantine / refs.checked(task, "task")
        return release.worktree(workspace, _standing(workspace.repository), task, quarantine)

    async def diff(self, repository: Path, base: str, head: str) -> str:
        return await self._run(reading.diff, repository, base, head)

    async def show(self, repository: Path, commit: str, path: str) -> bytes | None:
        return await self._run(reading.show, repository, commit, path)

    async def contains(self, repository: Path, commit: str, ancestor: str) -> bool:
        return await self._run(merging.contains, repository, commit, ancestor)

    async def exclude(self, repository: Path, patterns: Sequence[str]) -> None:
        await self._run(self._exclude, repository, patterns)

    def _exclude(self, repository: Path, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if not pattern or set(pattern) & {"\n", "\0"}:
                raise InvalidInput(f"{pattern!r} is no pattern for an exclude file.")
        files.exclude(_standing(repository).common, patterns)


def _refused(error: OSError) -> GitError:
    """What the file system refused while we did git's work."""
    place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return GitError(f"{place}{os.strerror(error.errno or errno.EIO)}.", hint="See who may write there.")


def _standing(path: Path) -> Tree:
    """The working tree at a path, or what became of it in words."""
    tree = layout.tree_at(path.resolve())
    if tree is not None:
        return tree
    if not path.exists():
        raise GitError(
            f"{path} is gone: somebody removed or moved it.", hint="What was committed is still on its branch."
        )
    raise GitError(
        f"{path} belongs to no git repository any more.",
        hint="Was the repository moved? Name it again by its new path.",
    )


def _is_here(workspace: Workspace) -> bool:
    return workspace.path.resolve() == workspace.repository.resolve()
