"""A working tree as a commit, without touching it: its own index is only read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from codefleet.core.errors import GitError
from codefleet.workspaces import commits, git, leftovers, refs, space, status
from codefleet.workspaces.layout import Tree, read
from codefleet.workspaces.lock import unstuck


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands in a working tree."""

    status: status.Status
    sorted: leftovers.Sorted

    @property
    def files(self) -> tuple[str, ...]:
        """What a commit would take."""
        return tuple(entry.path for entry in self.sorted.take)


def look(tree: Tree) -> Seen:
    """Ask git, with a new index where a killed or careless program left none that can be read."""
    if tree.gitdir != tree.common and not (tree.gitdir / "index").exists():
        _mend(tree)
    try:
        now = status.of(tree.path)
    except GitError:
        if _readable(tree):
            raise
        _mend(tree)
        now = status.of(tree.path)
    return Seen(now, leftovers.sort(tree.path, now.entries, copied(tree)))


def _readable(tree: Tree) -> bool:
    return git.run(tree.path, "ls-files", "--error-unmatch", "--", ":/", ok=(0, 1, 128)).code != 128


def _mend(tree: Tree) -> None:
    """A new index from the commit; the broken one is kept beside it."""
    index = tree.gitdir / "index"
    if index.exists():
        index.replace(tree.gitdir / "index.broken")
    unstuck(lambda: git.run(tree.path, "read-tree", "HEAD"), tree)


def copied(tree: Tree) -> Collection[str]:
    """The credential files that were copied into this working tree."""
    return set(filter(None, read(tree.own / "copied").split("\0")))


def stage(tree: Tree, seen: Seen, index: Path | None = None) -> str:
    """Bring what is to be taken into an index (the tree's own, or another) and write its tree."""
    env = {"GIT_INDEX_FILE": str(index)} if index is not None else {}
    for flag, names in (("--force-remove", seen.sorted.staged), ("--remove", _changed(seen.sorted.take))):
        if names:
            stdin = os.fsencode("\0".join(names))
            git.run(tree.path, "update-index", "--add", "--replace", flag, "-z", "--stdin", stdin=stdin, env=env)
    return git.run(tree.path, "write-tree", env=env).text


def _changed(entries: Sequence[status.Entry]) -> list[str]:
    """Paths whose file differs from the index; what was only staged is in the index already."""
    return [entry.path for entry in entries if entry.work != "."]


def written(tree: Tree, seen: Seen) -> str:
    """The tree object of what stands there, made through a copy of the index."""
    with _copy(tree) as index:
        return stage(tree, seen, index)


def parents(tree: Tree, head: str) -> list[str]:
    """What a commit made now stands on: the head, and what is being merged into it."""
    return [commit for commit in (head, *read(tree.gitdir / "MERGE_HEAD").split()) if commit]


@contextmanager
def _copy(tree: Tree) -> Iterator[Path]:
    """A copy of the index beside it; where nothing was ever staged there is none."""
    index = tree.gitdir / f"codefleet-index-{uuid4().hex[:8]}"
    try:
        with space.writing(tree.gitdir), suppress(FileNotFoundError):
            shutil.copyfile(tree.gitdir / "index", index)
        yield index
    finally:
        index.unlink(missing_ok=True)
        index.with_name(f"{index.name}.lock").unlink(missing_ok=True)


def beside(tree: Tree, seen: Seen, ref: str, text: str, who: commits.Identity) -> str:
    """A commit of what stands there, on top of the head and of no branch: the head itself where nothing is
    uncommitted, what the ref has where nothing changed since."""
    if not seen.sorted.take:
        return seen.status.head or commits.root(tree.path)
    content = written(tree, seen)
    before = refs.resolve(tree.path, [ref]).get(ref, "")
    on = parents(tree, seen.status.head)
    return (
        before if before and is_same(tree, before, content, on) else commits.commit(tree.path, content, on, text, who)
    )


def is_same(tree: Tree, commit: str, content: str, on: Sequence[str]) -> bool:
    """Has the commit this content, on top of these commits (and maybe others behind them)?"""
    found = git.run(tree.path, "rev-parse", f"{commit}^{{tree}}", f"{commit}^@").text.split()
    return found[0] == content and found[1 : 1 + len(on)] == list(on)
