"""Where git keeps things, read from the file system: no process is worth these few facts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_POINTER = "gitdir: "
#: What git writes into the lock file of a worktree that it begins to make.
INITIALIZING = "initializing"


@dataclass(frozen=True, slots=True)
class Tree:
    """A working tree with its git directory and the one that it shares with the repository's other worktrees."""

    path: Path
    gitdir: Path
    common: Path

    @property
    def own(self) -> Path:
        """Where we keep what we know of this worktree; it goes with it."""
        return self.gitdir / "codefleet"


def begun(entry: Path) -> Path:
    """The mark of a registration that we wrote: what is in its worktree is not whole until it is said to be."""
    return entry / "codefleet" / "begun"


def shared(common: Path) -> Path:
    """Where we keep what concerns the whole repository."""
    return common / "codefleet"


def tree_at(path: Path) -> Tree | None:
    """The working tree whose top this is (or the bare repository that lies here); None when there is none."""
    place = _pointed(path / ".git") or path
    if not _is_gitdir(place):
        return None
    gitdir = place.resolve()
    return Tree(path, gitdir, _common(gitdir))


def tree_around(path: Path) -> Tree | None:
    """The working tree that a path lies in (or whose git directory it lies in)."""
    places = (place for place in (path, *path.parents) if place.name != ".git")
    return next((tree for place in places if (tree := tree_at(place)) is not None), None)


def is_bare(tree: Tree) -> bool:
    """A repository without a working tree of its own."""
    return tree.path == tree.gitdir


def registered(common: Path, path: Path) -> Iterator[Path]:
    """The entries of linked worktrees that say they are at this path."""
    folder = common / "worktrees"
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    wanted = _bones(path.name)
    return (folder / name for name in sorted(names) if _bones(name).startswith(wanted) and says(folder / name, path))


def _bones(name: str) -> str:
    """What the name of a worktree's folder and that of its registration share: git makes the one from the other by
    putting `-` for what a ref may not hold, and a number behind it where the name is taken."""
    return "".join(letter for letter in name if letter.isascii() and letter.isalnum())


def read(file: Path) -> str:
    """A small file; empty when it is not there."""
    try:
        return os.fsdecode(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def says(entry: Path, path: Path) -> bool:
    """Is this the registration of a linked worktree at this path?"""
    words = read(entry / "gitdir").rstrip("\n")
    return bool(words) and os.path.normpath(entry / words) == str(path / ".git")


def _pointed(dot_git: Path) -> Path | None:
    if dot_git.is_dir():
        return dot_git
    words = read(dot_git)
    return dot_git.parent / words.removeprefix(_POINTER).rstrip("\n") if words.startswith(_POINTER) else None


def _is_gitdir(path: Path) -> bool:
    """git asks the same: a HEAD, and objects and refs here or in the common directory."""
    return (path / "HEAD").exists() and (
        (path / "commondir").exists() or ((path / "objects").is_dir() and (path / "refs").is_dir())
    )


def _common(gitdir: Path) -> Path:
    words = read(gitdir / "commondir").rstrip("\n")
    return (gitdir / words).resolve() if words else gitdir
