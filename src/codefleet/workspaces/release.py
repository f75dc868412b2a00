"""Taking a worktree away, when all in it is saved."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from codefleet.ports import Workspace
from codefleet.workspaces import git, layout, salvage, snapshot, space, worktrees
from codefleet.workspaces.layout import Tree

_NOTE = "NOTE.txt"
_MODULES = ".git/modules"


def worktree(workspace: Workspace, repository: Tree, task: str, quarantine: Path) -> str:
    """Remove it, or say why it stays."""
    path = workspace.path.resolve()
    tree = worktrees.standing(repository, path)
    if tree is None:
        return worktrees.sweep(repository, path)
    seen = snapshot.look(tree) if worktrees.is_filled(tree) else None
    kept = _locked(tree) or (_unsaved(tree, seen, task) if seen else "")
    if not kept:
        _move_out(tree, repository, seen, quarantine)
        worktrees.remove(tree)
    return kept


def _locked(tree: Tree) -> str:
    reason = layout.read(tree.gitdir / "locked").strip()
    return f"Somebody locked it{f': {reason}' if reason else ''}." if (tree.gitdir / "locked").exists() else ""


def _unsaved(tree: Tree, seen: snapshot.Seen, task: str) -> str:
    """Why it must stay; empty when everything is on a branch, in a ref of the fleet, or goes to the quarantine."""
    if not seen.status.branch and not salvage.is_held(tree, seen.status.head):
        return f"No branch holds its commit {seen.status.head[:12]}."
    submodules = [entry.path for entry in seen.status.entries if set(entry.submodule[2:]) - {"."}]
    if submodules:
        return f"Work in submodules is not saved: {_few(submodules)}."
    if seen.files and not salvage.is_kept(tree, snapshot.written(tree, seen), task):
        return f"{len(seen.files)} files in it are not saved: {_few(seen.files)}."
    return ""


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _move_out(tree: Tree, repository: Tree, seen: snapshot.Seen | None, quarantine: Path) -> None:
    """What no commit takes goes to the quarantine, but for copies of what the project has. With a submodule's own
    commits goes its repository."""
    copies = snapshot.copied(tree)
    left = {*(seen.sorted.left_out if seen else ()), *copies}
    places = {name: tree.path / name for name in sorted(left) if not _is_copy(repository, tree, name, copies)}
    if _has_own_commits(tree.gitdir / "modules"):
        places[_MODULES] = tree.gitdir / "modules"
    if not places:
        return
    with space.writing(quarantine):
        quarantine.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (quarantine / _NOTE).open("a") as note:
            note.write(f"Left in {tree.path} and in no commit:\n" + "".join(f"  {name}\n" for name in places))
        moved = {name: _move(place, quarantine / name) for name, place in places.items()}
    if _MODULES in moved:
        _set_free(moved[_MODULES])


def _is_copy(repository: Tree, tree: Tree, name: str, copies: Collection[str]) -> bool:
    """Was it copied, and does it still say what the project's file says (or is gone)?"""
    if name not in copies:
        return False
    here, there = tree.path / name, repository.path / name
    return not here.is_file() or (there.is_file() and filecmp.cmp(here, there, shallow=False))


def _has_own_commits(modules: Path) -> bool:
    """Did submodules of a worktree get commits that their remotes do not have?"""
    own = ("rev-list", "--count", "--all", "HEAD", "--not", "--remotes")
    return any(git.run(place, *own).text != "0" for place in _repositories(modules))


def _set_free(modules: Path) -> None:
    """Repositories that look for their working tree where it was open no more."""
    for place in _repositories(modules):
        git.run(modules, "config", "--file", str(place / "config"), "--unset-all", "core.worktree", ok=(0, 5))


def _repositories(folder: Path) -> list[Path]:
    return [head.parent for head in folder.rglob("HEAD") if (head.parent / "objects").is_dir()]


def _move(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    free = target
    while free.exists():
        number += 1
        free = target.with_name(f"{target.name}.{number}")
    shutil.move(source, free)
    return free
