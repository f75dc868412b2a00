"""Names and moves of refs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from codefleet.core.errors import InvalidInput
from codefleet.ports import ForeignMove
from codefleet.workspaces import git
from codefleet.workspaces.layout import Tree
from codefleet.workspaces.lock import unstuck

FLEET = "refs/codefleet/"
#: What git itself refuses in a ref name (`git help check-ref-format`).
_WRONG = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[/-]|/$|\.$|(^|/)\.|\.lock(/|$)|^@$|^HEAD$")


def branch(name: str) -> str:
    """The full name of a branch; `InvalidInput` when git would not take it."""
    return f"refs/heads/{checked(name, 'branch')}"


def checked(name: str, what: str) -> str:
    """The name itself, if it may be a part of a ref."""
    if not name or _WRONG.search(name):
        raise InvalidInput(
            f"{name!r} can not be the name of a {what}.", hint="Letters, digits, `-`, `_` and `/` are always fine."
        )
    return name


def base(task: str, number: int) -> str:
    return f"{FLEET}base/{checked(task, 'task')}/{number}"


def head(task: str, number: int) -> str:
    return f"{FLEET}heads/{checked(task, 'task')}/{number}"


def salvage(task: str, number: int) -> str:
    return f"{FLEET}salvage/{checked(task, 'task')}/{number}"


def target_names(target: str) -> list[str]:
    """Where the head of a target is looked for, best first: the fleet's line, the branch, the remote's. No target is
    what the repository has checked out."""
    if not target:
        return ["HEAD"]
    return [f"{FLEET}lines/{target}", f"refs/heads/{target}", f"refs/remotes/origin/{target}", target]


def resolve(cwd: Path, names: Iterable[str]) -> dict[str, str]:
    """name → commit, for those of the names that are one. One call of git for all."""
    asked = [name for name in dict.fromkeys(names) if name and "\n" not in name and "\0" not in name]
    if not asked:
        return {}
    lines = b"".join(os.fsencode(f"{name}^{{commit}}\n") for name in asked)
    answer = git.run(cwd, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=lines)
    found = zip(asked, answer.text.split("\n"), strict=True)
    return {name: line.split()[0] for name, line in found if line.endswith(" commit")}


#: The arguments with which git takes moves from its input.
MOVE = ("update-ref", "-z", "--stdin")


def move(tree: Tree, moves: Mapping[str, tuple[str, str | None]]) -> None:
    """All or none: ref → (new commit, the commit that it must be at; empty: it must not exist, None: whatever)."""
    unstuck(lambda: git.run(tree.path, *MOVE, stdin=moving(moves)), tree, list(moves))


def moving(moves: Mapping[str, tuple[str, str | None]]) -> bytes:
    """What `update-ref -z --stdin` is told."""
    return b"".join(_line(ref, new, old) for ref, (new, old) in moves.items())


def _line(ref: str, new: str, old: str | None) -> bytes:
    return os.fsencode(f"create {ref}\0{new}\0" if old == "" else f"update {ref}\0{new}\0{old or ''}\0")


def all_refs(cwd: Path, *patterns: str) -> dict[str, str]:
    """Every ref with what it points to."""
    lines = git.run(cwd, "for-each-ref", "--format=%(objectname) %(refname)", *patterns).text.splitlines()
    return {name: commit for commit, _, name in (line.partition(" ") for line in lines)}


def foreign(before: Mapping[str, str], after: Mapping[str, str], own: Sequence[str]) -> list[ForeignMove]:
    """What moved and was neither the run's own nor the fleet's."""
    moved = sorted(ref for ref in before.keys() | after.keys() if before.get(ref) != after.get(ref))
    ours = (*own, f"{FLEET}*")
    strange = [ref for ref in moved if not any(fnmatchcase(ref, glob) for glob in ours)]
    return [ForeignMove(ref=ref, before=before.get(ref, ""), after=after.get(ref, "")) for ref in strange]
