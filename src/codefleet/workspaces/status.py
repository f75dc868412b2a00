"""What is uncommitted in a working tree, as git tells it in one call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from codefleet.workspaces import git

_ARGS = (
    "status",
    "--porcelain=v2",
    "-z",
    "--branch",
    "--untracked-files=all",
    "--no-renames",
    "--ignore-submodules=none",
)
_COLUMNS = {"1": 8, "u": 10}
_LINK = "160000"
_NO_COMMIT = re.compile(r"\(initial\)")


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    index: str
    """How the index differs from the commit: `.`, M, A, D, T; `?` untracked; U unmerged."""
    work: str
    """How the file differs from the index, likewise."""
    submodule: str = "N..."
    link: bool = False
    """The index holds a commit of another repository there."""

    @property
    def new(self) -> bool:
        """Nothing of that name was committed before."""
        return self.index in {"?", "A"}


@dataclass(frozen=True)
class Status:
    head: str
    """The commit checked out; empty when there is none yet."""
    branch: str
    """The branch checked out; empty when detached."""
    entries: tuple[Entry, ...]

    @cached_property
    def clean(self) -> bool:
        return not self.entries


def of(path: Path, env: Mapping[str, str] | None = None) -> Status:
    """Look; nothing is changed, not even the index's own memory."""
    fields = iter(git.run(path, *_ARGS, env=env).fields)
    headers: dict[str, str] = {}
    return Status(entries=tuple(_entries(fields, headers)), **_place(headers))


def _place(headers: Mapping[str, str]) -> dict[str, str]:
    head, branch = headers.get("branch.oid", ""), headers.get("branch.head", "")
    return {"head": "" if _NO_COMMIT.match(head) else head, "branch": "" if branch == "(detached)" else branch}


def _entries(fields: Iterator[str], headers: dict[str, str]) -> Iterator[Entry]:
    for item in fields:
        kind, _, rest = item.partition(" ")
        if kind == "#":
            key, _, value = rest.partition(" ")
            headers[key] = value
        elif kind == "?":
            yield Entry(rest, "?", "?")
        elif kind in _COLUMNS:
            columns = rest.split(" ", _COLUMNS[kind] - 1)
            state = "UU" if kind == "u" else columns[0]
            yield Entry(columns[-1], state[0], state[1], columns[1], columns[3] == _LINK)
