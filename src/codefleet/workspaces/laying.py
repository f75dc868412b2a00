"""The registration of a worktree for a new branch, written as git keeps it (`git help repository-layout`).

`git worktree add` starts three more gits to write four small files, and a reader that meets it half-way fails. Here the
registration appears whole, by one rename. Repositories whose worktrees need more than these files are left to git.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from uuid import uuid4

from codefleet.workspaces import layout, lock, space
from codefleet.workspaces.layout import Tree

#: What makes git write more than we do: other ways to keep refs or settings, sparse checkouts, shared permissions.
_MORE = re.compile(r"\[extensions|sparsecheckout|sharedrepository|worktreeconfig", re.IGNORECASE)

#: A git that a person called took the name, or the last worktree away with their folder.
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT})


def lay(repository: Tree, path: Path, branch: str) -> Tree | None:
    """An empty worktree on a branch that does not exist yet; None where that is git's to make, or something is at the
    path."""
    common = repository.common
    if _MORE.search(layout.read(common / "config")) or (common / "info" / "sparse-checkout").exists():
        return None
    with lock.repository(common), space.writing(path), space.writing(common):
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            return None
        entry = _registered(common, path, branch)
    return Tree(path, entry, common)


def _registered(common: Path, path: Path, branch: str) -> Path:
    for forgotten in layout.shared(common).glob("new-*"):
        shutil.rmtree(forgotten)
    new = layout.shared(common) / f"new-{uuid4().hex[:8]}"
    mark = layout.begun(new)
    mark.parent.mkdir(parents=True)
    mark.touch()
    for name, text in {"HEAD": f"ref: refs/heads/{branch}", "commondir": "../..", "gitdir": f"{path}/.git"}.items():
        (new / name).write_bytes(os.fsencode(f"{text}\n"))
    while True:
        (common / "worktrees").mkdir(exist_ok=True)
        entry = _free(common / "worktrees", path.name)
        (path / ".git").write_bytes(os.fsencode(f"gitdir: {entry}\n"))
        try:
            return new.rename(entry)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise


def _free(folder: Path, name: str) -> Path:
    """A name that no worktree has, as git would choose it."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "worktree"
    number = 0
    while (folder / (taken := f"{plain}{number or ''}")).exists():
        number += 1
    return folder / taken
