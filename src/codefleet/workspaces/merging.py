"""Bases: the target with upstream heads merged in memory, without touching any checkout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codefleet.workspaces import commits, git


@dataclass(frozen=True, slots=True)
class Joined:
    """A line of work with upstream heads brought in."""

    base: str
    """What the work is counted from."""
    tip: str
    conflicts: Mapping[str, str] = field(default_factory=dict)


def contains(cwd: Path, commit: str, ancestor: str) -> bool:
    """Is the ancestor a part of the commit's history?"""
    if commit == ancestor:
        return True
    return git.run(cwd, "merge-base", "--is-ancestor", "--end-of-options", ancestor, commit, ok=(0, 1)).code == 0


def common(cwd: Path, one: str, other: str) -> str:
    """The best common ancestor; empty when the histories have none."""
    answer = git.run(cwd, "merge-base", "--end-of-options", one, other, ok=(0, 1))
    return answer.text.partition("\n")[0]


def merge(cwd: Path, ours: str, theirs: str, text: str) -> str | None:
    """Both in one commit: either of them where it contains the other, else a merge; None when they conflict."""
    meeting = ours if ours == theirs else common(cwd, ours, theirs)
    if meeting == theirs:
        return ours
    if meeting == ours:
        return theirs
    answer = git.run(
        cwd, "merge-tree", "--write-tree", "--no-messages", "--allow-unrelated-histories", ours, theirs, ok=(0, 1)
    )
    if answer.code:
        return None
    return commits.commit(cwd, answer.text, (ours, theirs), text, commits.FLEET)


def with_upstreams(cwd: Path, base: str, tip: str, heads: Mapping[str, str]) -> Joined:
    """Base and tip joined with every head that fits both; the others are named. What contains others goes first, so
    that a chain costs one merge and what conflicts still leaves its parts a chance."""
    conflicts = {}
    for task, head in _widest_first(cwd, heads):
        joined = _joined(cwd, base, tip, head, f"Bring in the work of {task}\n")
        if joined is None:
            conflicts[task] = head
        else:
            base, tip = joined
    return Joined(base, tip, conflicts)


def _joined(cwd: Path, base: str, tip: str, head: str, text: str) -> tuple[str, str] | None:
    """The work on top of a base that has the head: so the head's changes never count as the work's own."""
    under = merge(cwd, base, head, text)
    if under is None or base == tip:
        return None if under is None else (under, under)
    over = merge(cwd, tip, under, text)
    return None if over is None else (under, over)


def _widest_first(cwd: Path, heads: Mapping[str, str]) -> list[tuple[str, str]]:
    if len(heads) < 2:
        return list(heads.items())
    widest = set(git.run(cwd, "merge-base", "--independent", "--end-of-options", *heads.values()).text.split())
    return sorted(heads.items(), key=lambda item: item[1] not in widest)
