"""What is never committed for an agent: secrets, bulk, dependency folders, other repositories."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from codefleet.workspaces import git
from codefleet.workspaces.layout import read
from codefleet.workspaces.status import Entry

BIG = 10_000_000
_SECRET = re.compile(
    r"\.env(\..+)?|\.netrc|\.pypirc|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519)|.*\.(p12|pfx|jks|keystore)"
)
_EXAMPLE = re.compile(r"\.env\.(example|sample|template|dist|defaults?|test)")
_KEY = re.compile(r".*\.(pem|key)")
_DEPENDENCIES = frozenset({"node_modules", "bower_components", ".venv", "__pycache__", ".tox", ".nox", ".gradle"})
#: A folder that holds one of these can be made again by a tool.
_REBUILT = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})


@dataclass(frozen=True, slots=True)
class Sorted:
    """Entries of a status, told apart."""

    take: tuple[Entry, ...]
    staged: tuple[str, ...]
    """Left out although the agent staged them: they must leave the index."""
    left_out: tuple[str, ...]
    """As a person is told: a folder once, with a slash at its end."""


def sort(top: Path, entries: Sequence[Entry], copied: Collection[str]) -> Sorted:
    """Tell what is committed from what is left out. Files that the project tracks are its own affair."""
    bulk = _bulk(entry.path for entry in entries if entry.new)
    large = _without_lfs(top, [entry.path for entry in entries if entry.new and _is_big(top, entry)])
    take, staged, out = [], [], []
    for entry in entries:
        name = _left_out(top, entry, copied, bulk) or (entry.path if entry.path in large else "")
        if not name:
            take.append(entry)
            continue
        out.append(name)
        if entry.index == "A":
            staged.append(entry.path)
    return Sorted(tuple(take), tuple(staged), tuple(sorted(set(out))))


def _left_out(top: Path, entry: Entry, copied: Collection[str], bulk: Collection[str]) -> str:
    """The name under which an entry is left out; empty when it is taken."""
    if entry.submodule.startswith("S"):
        return f"{entry.path}/" if _is_stray(top, entry) or _is_dirty_inside(entry) else ""
    if _is_closed(top, entry):
        return entry.path
    if not entry.new:
        return ""
    if entry.path.endswith("/") or entry.path in copied or _is_secret(top, entry.path):
        return entry.path
    parents = [str(parent) for parent in reversed(PurePosixPath(entry.path).parents)]
    return next((f"{parent}/" for parent in parents if parent in bulk), "")


def _is_dirty_inside(entry: Entry) -> bool:
    """A submodule whose own files changed but not its commit: only itself could commit that."""
    return (entry.index, entry.work, entry.submodule[1]) == (".", "M", ".")


def _is_stray(top: Path, entry: Entry) -> bool:
    """A repository that was added as a bare commit nobody else has, not as a submodule."""
    lines = {line.strip() for line in read(top / ".gitmodules").splitlines()}
    return entry.index == "A" and entry.link and f"path = {entry.path}" not in lines


def _bulk(paths: Iterable[str]) -> set[str]:
    """Folders of dependencies, and of what tools make again, among new files."""
    found = set()
    for path in paths:
        parts = PurePosixPath(path).parts
        found |= {"/".join(parts[: n + 1]) for n, part in enumerate(parts[:-1]) if part in _DEPENDENCIES}
        if parts[-1] in _REBUILT and len(parts) > 1:
            found.add("/".join(parts[:-1]))
    return found


def _is_secret(top: Path, path: str) -> bool:
    name = PurePosixPath(path).name
    if _SECRET.fullmatch(name):
        return not _EXAMPLE.fullmatch(name)
    return bool(_KEY.fullmatch(name)) and b"PRIVATE KEY" in _beginning(top / path)


def _beginning(file: Path) -> bytes:
    if _regular(file) is None:
        return b""
    with file.open("rb") as opened:
        return opened.read(4096)


def _is_big(top: Path, entry: Entry) -> bool:
    found = _regular(top / entry.path)
    return found is not None and found.st_size > BIG


def _is_closed(top: Path, entry: Entry) -> bool:
    """A file that its owner may not read: git would give up on all the others too."""
    file = top / entry.path
    return _regular(file) is not None and not os.access(file, os.R_OK)


def _regular(file: Path) -> os.stat_result | None:
    try:
        found = os.lstat(file)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _without_lfs(top: Path, paths: Sequence[str]) -> set[str]:
    """Those that git itself would have to store: Git LFS keeps its files elsewhere."""
    if not paths:
        return set()
    names = os.fsencode("\0".join(paths))
    fields = git.run(top, "check-attr", "-z", "--stdin", "filter", stdin=names).fields
    return {path for path, value in zip(fields[::3], fields[2::3], strict=True) if value != "lfs"}
