"""Worktrees that hold exactly one commit's tree, kept for the next proof."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codefleet.core.errors import GitError, InvalidInput
from codefleet.workspaces import git, layout, refs, space, worktrees
from codefleet.workspaces.layout import Tree
from codefleet.workspaces.lock import unstuck


def at(repository: Tree, path: Path, commit: str, caches: Sequence[str]) -> Path:
    """The worktree at a path, holding the commit and nothing else but caches. What ran in it may have broken it in
    any way: then it is made anew."""
    for cache in caches:
        _check(cache)
    place = path.resolve()
    try:
        _put(repository, place, commit, caches)
    except GitError:
        if not refs.resolve(repository.path, [commit]):
            raise
        worktrees.discard(repository, place)
        _put(repository, place, commit, caches)
    return path


def _put(repository: Tree, path: Path, commit: str, caches: Sequence[str]) -> None:
    tree, _ = worktrees.ensure(repository, path, commit)
    _trust_index(tree)
    unstuck(lambda: git.run(tree.path, "checkout", "-q", "-f", "--detach", commit, "--"), tree)
    _clean(tree, caches)
    _remember_index(tree)


def _check(cache: str) -> None:
    if not cache or cache.startswith(("!", "#")) or "\0" in cache or "\n" in cache:
        raise InvalidInput(
            f"{cache!r} is no pattern for a cache.", hint="`proof.caches` takes patterns as .gitignore does."
        )


def _trust_index(tree: Tree) -> None:
    """git takes a file for unchanged when its index says so. An index that was written since we left it may say
    anything, so it is made anew from the files."""
    index = tree.gitdir / "index"
    if not index.exists() or layout.read(tree.own / "index") == _mark(index):
        return
    index.unlink()
    unstuck(lambda: git.run(tree.path, "read-tree", "HEAD"), tree)
    unstuck(lambda: git.run(tree.path, "update-index", "-q", "--refresh", ok=(0, 1)), tree)


def _remember_index(tree: Tree) -> None:
    with space.writing(tree.gitdir):
        tree.own.mkdir(exist_ok=True)
        (tree.own / "index").write_text(_mark(tree.gitdir / "index"))


def _mark(index: Path) -> str:
    """What can not stay the same when a file is written: nobody sets a change time."""
    found = index.stat()
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _clean(tree: Tree, caches: Sequence[str]) -> None:
    keep = [f"--exclude={cache}" for cache in caches]
    try:
        git.run(tree.path, "clean", "-q", "-ffdx", *keep)
    except GitError:
        worktrees.make_writable(tree.path)
        git.run(tree.path, "clean", "-q", "-ffdx", *keep)
