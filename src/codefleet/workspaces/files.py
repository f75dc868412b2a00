"""Credential files that go into a workspace and never into a commit, and the repository's own exclude file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from codefleet.core.errors import InvalidInput
from codefleet.workspaces import git, lock, space
from codefleet.workspaces.layout import Tree, read

_SPECIAL = re.compile(r"([\\*?\[\]! #])")


def copy(source: Path, tree: Tree, patterns: Sequence[str]) -> list[str]:
    """Copy what matches, mode kept, and remember it; what the project tracks stays as the commit has it."""
    found = sorted({name for pattern in patterns for name in _matches(source, pattern)})
    tracked = _tracked(tree, found)
    wanted = [name for name in found if name not in tracked and _stays_inside(tree.path, name)]
    if not wanted:
        return []
    exclude(tree.common, ["/" + _SPECIAL.sub(r"\\\1", name) for name in wanted])
    _remember(tree, wanted)
    for name in wanted:
        _copy(source / name, tree.path / name)
    return wanted


def exclude(common: Path, patterns: Sequence[str]) -> None:
    """Add lines to `info/exclude`, once."""
    file = common / "info" / "exclude"
    if set(patterns) <= set(read(file).split("\n")):
        return
    with lock.repository(common), space.writing(common):
        before = read(file)
        new = [pattern for pattern in dict.fromkeys(patterns) if pattern not in before.split("\n")]
        file.parent.mkdir(exist_ok=True)
        gap = "" if not before or before.endswith("\n") else "\n"
        _replace(file, before + gap + "".join(f"{line}\n" for line in new))


def _matches(source: Path, pattern: str) -> Iterator[str]:
    """Names under the project that a pattern means: files, and all files of a folder."""
    parts = PurePosixPath(pattern).parts
    if not parts or pattern.startswith(("/", "~")) or ".." in parts or "\0" in pattern:
        raise InvalidInput(
            f"{pattern!r} is no pattern for files of the project.",
            hint="Give it relative to the project, without `..`.",
        )
    for place in source.glob(pattern):
        for file in _files(place):
            if _is_allowed(source, file):
                yield str(file.relative_to(source))


def _files(place: Path) -> Iterable[Path]:
    if place.is_dir() and not place.is_symlink():
        return (Path(folder) / name for folder, _, names in os.walk(place) for name in names)
    return [place]


def _is_allowed(source: Path, file: Path) -> bool:
    """A regular file that really lies in the project, and not in a git directory."""
    real = file.resolve()
    return real.is_file() and real.is_relative_to(source.resolve()) and ".git" not in file.relative_to(source).parts


def _tracked(tree: Tree, names: Sequence[str]) -> set[str]:
    there = [name for name in names if os.path.lexists(tree.path / name)]
    if not there:
        return set()
    return set(git.run(tree.path, "--literal-pathspecs", "ls-files", "-z", "--", *there).fields)


def _stays_inside(top: Path, name: str) -> bool:
    """Does no symlink of the workspace lead elsewhere?"""
    file = top / name
    return not file.is_symlink() and not file.is_dir() and file.parent.resolve().is_relative_to(top.resolve())


def _remember(tree: Tree, names: Sequence[str]) -> None:
    with space.writing(tree.gitdir):
        tree.own.mkdir(exist_ok=True)
        before = filter(None, read(tree.own / "copied").split("\0"))
        _replace(tree.own / "copied", "\0".join(sorted({*before, *names})))


def _copy(source: Path, target: Path) -> None:
    with space.writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.codefleet")
        try:
            shutil.copy2(source, beside)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def _replace(file: Path, text: str) -> None:
    """Write as a whole or not at all."""
    beside = file.with_name(f"{file.name}.codefleet")
    beside.write_bytes(os.fsencode(text))
    beside.replace(file)
