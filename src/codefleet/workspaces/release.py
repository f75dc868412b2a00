"""Taking a worktree away, when all in it is saved."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from codefleet.ports import Workspace
from codefleet.workspaces import layout, salvage, snapshot, space, worktrees
from codefleet.workspaces.layout import Tree

_NOTE = "NOTE.txt"


def worktree(workspace: Workspace, repository: Tree, task: str, quarantine: Path) -> str:
    """Remove it, or say why it stays."""
    path = workspace.path.resolve()
    tree = worktrees.standing(repository, path)
    if tree is None:
        return worktrees.sweep(repository, path)
    kept = _why_kept(tree, task)
    if not kept:
        _move_out(tree, quarantine)
        worktrees.remove(tree)
    return kept


def _why_kept(tree: Tree, task: str) -> str:
    locked = layout.read(tree.gitdir / "locked").strip()
    if (tree.gitdir / "locked").exists():
        return f"Somebody locked it{f': {locked}' if locked else ''}."
    if not worktrees.is_filled(tree):
        return ""
    seen = snapshot.look(tree)
    if not seen.status.branch and not salvage.is_held(tree, seen.status.head):
        return f"No branch holds its commit {seen.status.head[:12]}."
    submodules = [entry.path for entry in seen.status.entries if entry.submodule[1:] not in {"...", "C.."}]
    if submodules:
        return f"Work in submodules is not saved: {_few(submodules)}."
    if seen.files and not salvage.is_kept(tree, snapshot.written(tree, seen), task):
        return f"{len(seen.files)} files in it are not saved: {_few(seen.files)}."
    return ""


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _move_out(tree: Tree, quarantine: Path) -> None:
    """What no commit takes goes to the quarantine, but for copies of what the project has."""
    names = [name for name in snapshot.look(tree).sorted.left_out if name not in snapshot.copied(tree)]
    if not names:
        return
    with space.writing(quarantine):
        quarantine.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (quarantine / _NOTE).open("a") as note:
            note.write(f"Left in {tree.path} and in no commit:\n" + "".join(f"  {name}\n" for name in names))
        for name in names:
            _move(tree.path / name, quarantine / name)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    free = target
    while free.exists():
        number += 1
        free = target.with_name(f"{target.name}.{number}")
    shutil.move(source, free)
