"""What git's configuration says of a repository that its runs need to know: who commits, and where its hooks are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codefleet.workspaces import commits, git
from codefleet.workspaces.layout import Tree

#: Seconds after which git is asked again though no file that we know of changed: configuration may include others.
_FRESH = 60.0


@dataclass(frozen=True, slots=True)
class Customs:
    who: commits.Identity
    hooks: str
    """The folder of the repository's own hooks; a relative one counts from each working tree, as git has it."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    customs: Customs
    files: tuple[int, ...]
    at: float


class Known:
    """What git said, until the configuration changes: a run has no time to ask for what every run is told."""

    def __init__(self) -> None:
        self._said: dict[Path, _Remembered] = {}

    def of(self, tree: Tree) -> Customs:
        known, files, now = self._said.get(tree.common), tuple(_changed(tree)), time.monotonic()
        if known is None or known.files != files or now - known.at > _FRESH:
            known = self._said[tree.common] = _Remembered(_asked(tree), files, now)
        return known.customs


def _asked(tree: Tree) -> Customs:
    """git itself says it: a person's name only where one is configured, the hooks without our own setting."""
    ident, hooks = git.together(
        git.Call(tree.path, ("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT"), ok=(0, 128)),
        git.Call(tree.path, ("rev-parse", "--git-path", "hooks"), env={"GIT_CONFIG_COUNT": "0"}),
    )
    return Customs(commits.identity(ident.text if ident.code == 0 else ""), hooks.text)


def _changed(tree: Tree) -> Iterator[int]:
    """When the files were changed that configure git here."""
    home = Path(os.environ.get("HOME", "/"))
    own = [Path(os.environ["GIT_CONFIG_GLOBAL"])] if "GIT_CONFIG_GLOBAL" in os.environ else []
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    for file in (tree.common / "config", home / ".gitconfig", config / "git" / "config", *own):
        try:
            yield file.stat().st_mtime_ns
        except OSError:
            yield 0
