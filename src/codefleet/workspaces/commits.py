"""Commits by us: no hooks, no signing, the repository's identity or else our own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codefleet.workspaces import git

_IDENT = re.compile(r"(.*) <(.*)> \d+ [+-]\d+")


@dataclass(frozen=True, slots=True)
class Identity:
    name: str = "CodeFleet"
    email: str = "codefleet@localhost"

    @property
    def variables(self) -> dict[str, str]:
        """The same for author and committer."""
        roles = ("AUTHOR", "COMMITTER")
        return {
            f"GIT_{role}_{key}": value for role in roles for key, value in (("NAME", self.name), ("EMAIL", self.email))
        }


FLEET = Identity()


def identity(ident: str) -> Identity:
    """Who `Name <email> time zone` is; the fleet where nobody is."""
    match = _IDENT.fullmatch(ident)
    return Identity(match[1], match[2]) if match else FLEET


def message(title: str, task: str, number: int) -> str:
    """One line and the trailers by which the commit is found again."""
    line = " ".join(title.split()).replace("\0", "") or f"Work on task {task}"
    return f"{line}\n\nCodefleet-Task: {task}\nCodefleet-Run: {task}.{number}\n"


def commit(
    cwd: Path, tree: str, parents: Sequence[str], text: str, who: Identity, env: Mapping[str, str] | None = None
) -> str:
    """Make a commit object; no ref moves."""
    args = [word for parent in parents for word in ("-p", parent)]
    settings = {**who.variables, **(env or {})}
    return git.run(cwd, "commit-tree", tree, *args, stdin=os.fsencode(text), env=settings).text


def root(cwd: Path) -> str:
    """The commit that stands at the beginning of an empty repository: the same for every task."""
    tree = git.run(cwd, "hash-object", "-t", "tree", "-w", os.devnull).text
    dates = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
    return commit(cwd, tree, (), "An empty beginning\n", FLEET, dates)
