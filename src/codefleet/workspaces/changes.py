"""What a run produced, as git shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codefleet.core.model import FileChange
from codefleet.ports import ChangeSet
from codefleet.workspaces import git

_TYPES = {"A": "created", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class Head:
    """Where the work ends, with what its maker knows of it already."""

    commit: str
    tree: str = ""
    parents: tuple[str, ...] = ()


def between(cwd: Path, base: str, head: Head, *more: git.Call, left_out: Sequence[str] = ()) -> ChangeSet:
    """The change set of two commits; further calls that are due are made at the same time, and none for what is
    known."""
    ask: dict[str, git.Call] = {}
    if head.commit != base:
        ask["files"] = git.Call(cwd, ("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", base, head.commit))
    if head.parents != (base,):
        ask["commits"] = git.Call(cwd, ("rev-list", "--reverse", f"{base}..{head.commit}"))
    if not head.tree:
        ask["tree"] = git.Call(cwd, ("rev-parse", f"{head.commit}^{{tree}}"))
    said = dict(zip(ask, git.together(*ask.values(), *more), strict=False))
    return ChangeSet(
        base=base,
        head=head.commit,
        tree=said["tree"].text if "tree" in said else head.tree,
        files=tuple(_files(said["files"].out)) if "files" in said else (),
        commits=tuple(said["commits"].text.split()) if "commits" in said else (head.commit,),
        left_out=tuple(map(git.shown, left_out)),
    )


def _files(out: bytes) -> Iterator[FileChange]:
    """`--raw` entries come first (a colon, then the path), the `--numstat` ones (with the path in them) behind."""
    items = iter([os.fsdecode(item) for item in out.split(b"\0") if item])
    kinds: dict[str, str] = {}
    for item in items:
        if item.startswith(":"):
            kinds[next(items)] = item.rpartition(" ")[2][:1]
        else:
            added, removed, path = item.split("\t", 2)
            yield FileChange(
                path=git.shown(path),
                change_type=_TYPES.get(kinds.get(path, ""), "modified"),
                lines_added=_count(added),
                lines_removed=_count(removed),
            )


def _count(number: str) -> int:
    """Lines; none for a binary file."""
    return int(number) if number != "-" else 0
