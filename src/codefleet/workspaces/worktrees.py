"""Linked worktrees: made under the repository's lock, filled outside of it, and the same again after any crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from codefleet.core.errors import GitError
from codefleet.workspaces import git, layout, lock, space
from codefleet.workspaces.layout import Tree

#: Stands in git's own lock file while we remove a worktree: who finds it goes on with that.
_LEAVING = "codefleet removes it\n"


def ensure(repository: Tree, path: Path, start: str) -> tuple[Tree, bool]:
    """The worktree at a path, registered but maybe not filled; made for `start` (a branch, or a commit to detach at)
    when there is none. Tells whether it was made."""
    found = standing(repository, path)
    if found is not None:
        return found, False
    with lock.repository(repository.common) as held:
        found = standing(repository, path) or _reconnected(repository, path, held)
        if found is not None:
            return found, False
        _clear(repository, path)
        _add(repository, path, start, held)
    made = layout.tree_at(path)
    if made is None:
        raise GitError(f"git made no worktree at {path}.")
    return made, True


def fill(tree: Tree) -> None:
    """Check out what a worktree was made for, unless that was done."""
    if is_filled(tree):
        return
    lock.unstuck(lambda: git.together(filling(tree, "HEAD")), tree)
    mark_filled(tree)


def filling(tree: Tree, commit: str) -> git.Call:
    """The call that checks a commit out, over whatever a checkout before it left."""
    return git.Call(tree.path, ("read-tree", "--reset", "-u", commit))


def mark_filled(tree: Tree) -> None:
    with space.writing(tree.gitdir):
        tree.own.mkdir(exist_ok=True)
        (tree.own / "filled").touch()


def is_filled(tree: Tree) -> bool:
    """Was it checked out completely? Then whatever is missing in it was taken away by somebody. (An index is written
    when a checkout ends; a worktree that has one and none of our marks was made by a person.)"""
    if (tree.own / "filled").exists():
        return True
    return (tree.gitdir / "index").exists() and not layout.begun(tree.gitdir).exists()


def remove(tree: Tree) -> None:
    """Take a worktree away, folder and registration. What is in it is the caller's to have saved."""
    with lock.repository(tree.common) as held:
        with space.writing(tree.gitdir):
            (tree.gitdir / "locked").write_text(_LEAVING)
        try:
            git.run(tree.common, "worktree", "remove", "--force", "--force", str(tree.path), keep=(held,))
        except GitError:
            for place in (tree.path, tree.gitdir):
                _delete(place)


def discard(repository: Tree, path: Path) -> None:
    """Take a worktree away with all that is in it, however broken it is: a proof's is worth nothing."""
    if path.exists() and not _points_into(repository, path):
        raise _in_the_way(path)
    with lock.repository(repository.common):
        for place in (path, *layout.registered(repository.common, path)):
            _delete(place)


def sweep(repository: Tree, path: Path) -> str:
    """Forget a worktree that is not there any more, or only in part; says what stands in the way."""
    if not path.exists() and not any(layout.registered(repository.common, path)):
        return ""
    with lock.repository(repository.common):
        try:
            _clear(repository, path)
        except GitError as error:
            return error.message
    return ""


def standing(repository: Tree, path: Path) -> Tree | None:
    """A worktree of this repository that is whole: both ends know each other and git had finished making it."""
    tree = layout.tree_at(path)
    if tree is None or tree.gitdir.parent != repository.common / "worktrees" or layout.is_bare(tree):
        return None
    return tree if layout.says(tree.gitdir, path) and not _is_begun(tree.gitdir) else None


def _reconnected(repository: Tree, path: Path, held: int) -> Tree | None:
    """A worktree whose repository was moved: it points to where that was."""
    if layout.tree_at(path) is not None or not layout.read(path / ".git"):
        return None
    if not any((entry / "index").exists() for entry in layout.registered(repository.common, path)):
        return None
    git.run(repository.common, "worktree", "repair", str(path), keep=(held,))
    return standing(repository, path)


def _clear(repository: Tree, path: Path) -> None:
    """Take away what a killed git or a person left of an earlier worktree at this path: registrations without a
    folder, a folder with nothing in it but the link. Anything else stands in the way and is said."""
    entries = list(layout.registered(repository.common, path))
    ours = _is_ours(path, entries)
    if path.exists() and not ours and any(path.iterdir()):
        raise _in_the_way(path)
    for place in (path, *entries) if ours else entries:
        _delete(place)


def make_writable(top: Path) -> None:
    """Folders that a tool made read-only can not be emptied."""
    for folder, names, _ in os.walk(top):
        for name in names:
            place = Path(folder) / name
            if not place.is_symlink():
                place.chmod(place.stat().st_mode | 0o700)


def _delete(folder: Path) -> None:
    if folder.exists():
        make_writable(folder)
        shutil.rmtree(folder)


def _in_the_way(path: Path) -> GitError:
    what = "what was a worktree, but git knows it no more" if (path / ".git").is_file() else "something else"
    return GitError(f"There is {what} at {path}.", hint="Look into it and move it away.")


def _points_into(repository: Tree, path: Path) -> bool:
    """Is it, or was it, a linked worktree of this repository?"""
    inside = str(repository.common / "worktrees") in layout.read(path / ".git")
    return inside or any(layout.registered(repository.common, path))


def _is_ours(path: Path, entries: Iterable[Path]) -> bool:
    """A folder that git only began to make, or that we had begun to remove."""
    if not path.is_dir():
        return False
    if any(layout.read(entry / "locked") == _LEAVING for entry in entries):
        return True
    return [entry.name for entry in path.iterdir()] == [".git"] and (path / ".git").is_file()


def _is_begun(entry: Path) -> bool:
    return layout.read(entry / "locked").strip() in {layout.INITIALIZING, _LEAVING.strip()}


def _add(repository: Tree, path: Path, start: str, held: int) -> None:
    with space.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    where = ("--detach", str(path), start) if _is_commit(start) else (str(path), start)
    git.run(repository.common, "worktree", "add", "-q", "--no-checkout", *where, keep=(held,))


def _is_commit(start: str) -> bool:
    return len(start) in {40, 64} and not set(start) - set("0123456789abcdef")
