"""A project's files: the checkout's, and those of the branch that work is for.

What needs trust is taken from the target's tree, so that a change reaches it only as the branch itself changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from codefleet.config import keys
from codefleet.config.document import Document, Entry, Layer, Place, read
from codefleet.config.files import content
from codefleet.core.errors import ConfigError
from codefleet.ports import Repository

#: Where git and the fleet keep what a target's name can stand for.
_PLACES = ("codefleet/lines", "heads", "remotes/origin", "remotes", "tags")
INSTRUCTION = ".codefleet/INSTRUCTION.md"


class Trees(Protocol):
    """The part of `ports.Workspaces` that settings are read with."""

    async def probe(self, path: Path) -> Repository: ...

    async def show(self, repository: Path, commit: str, path: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a project's files say now."""

    repository: Repository
    target: str
    open: Layer
    """Keys that need no trust, from the checkout."""
    guarded: Layer
    """Keys that need trust, from the target's tree or, where it has no file, from the checkout."""
    instruction: str = ""
    """Needs trust as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files that count of one branch."""

    document: Document | None = None
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What git said, and the state of the repository that it said it in."""

    mark: object
    value: Any


@dataclass(slots=True)
class Reader:
    """Reads projects, and asks git again only when a ref that matters has moved."""

    trees: Trees
    _repositories: dict[Path, _Seen] = field(default_factory=dict)
    _known: dict[tuple[Path, str], _Seen] = field(default_factory=dict)

    async def read(self, path: Path, *, forced: str = "", fallback: str = "") -> Project:
        """The files of the project at a path. Its target is the forced branch, else the one that its files name, else
        the fallback, else what git says."""
        repository = await self._repository(path)
        checkout = checkout_document(repository.path)
        branch = forced or _target(checkout) or fallback or repository.default_target
        tree = await self._tree(repository, branch)
        if tree.document and not forced and _target(tree.document) not in {"", branch}:
            branch = _target(tree.document)
            tree = await self._tree(repository, branch)
        written = tree.instruction if tree.instruction is not None else _text(repository.path / INSTRUCTION)
        return Project(
            repository=repository,
            target=branch,
            open=_part(checkout, trust=False),
            guarded=_part(tree.document or checkout, trust=True),
            instruction=written or "",
        )

    async def _repository(self, path: Path) -> Repository:
        mark = _repository_mark(path / ".git")
        seen = self._repositories.get(path)
        if seen is None or mark is None or seen.mark != mark:
            found = await self.trees.probe(path)
            seen = self._repositories[path] = _Seen(None if found.empty else mark, found)
        repository: Repository = seen.value
        return repository

    async def _tree(self, repository: Repository, branch: str) -> Tree:
        if not repository.git or repository.empty or not branch:
            return Tree()
        place = (repository.path, branch)
        mark = _branch_mark(repository.path / ".git", branch)
        seen = self._known.get(place)
        if seen is None or mark is None or seen.mark != mark:
            seen = self._known[place] = _Seen(mark, await self._read_tree(*place))
        tree: Tree = seen.value
        return tree

    async def _read_tree(self, repository: Path, branch: str) -> Tree:
        show = self.trees.show
        found = [(name, await show(repository, branch, name)) for name in keys.PROJECT_FILES]
        document = _only([(name, data) for name, data in found if data is not None], f" (on branch {branch})")
        instruction = await show(repository, branch, INSTRUCTION)
        return Tree(document=document, instruction=None if instruction is None else _decoded(instruction))


def project_file(repository: Path) -> Path:
    """The file that holds the project's settings, or would."""
    there = [repository / name for name in keys.PROJECT_FILES if (repository / name).is_file()]
    return there[0] if there else repository / keys.PROJECT_FILES[0]


def label(path: Path, place: Place) -> str:
    """What a settings file is called in messages and origins."""
    if place is Place.HOME:
        return keys.HOME_FILE
    return next(
        (name for name in keys.PROJECT_FILES if path.parts[-name.count("/") - 1 :] == Path(name).parts), path.name
    )


def checkout_document(repository: Path) -> Document:
    """What the checkout's file says; `ConfigError` when it is wrong or when there are two."""
    found = [(name, content(repository / name, link=False)) for name in keys.PROJECT_FILES]
    return _only([(name, data) for name, data in found if data is not None]) or Document()


def _only(found: Sequence[tuple[str, bytes]], place: str = "") -> Document | None:
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise ConfigError(f"{names} are both there{place}", hint="Keep one of them.")
    document = read(found[0][1], found[0][0], Place.PROJECT) if found else None
    if document and document.problems:
        raise ConfigError(document.problems[0].text + place, hint=document.problems[0].hint)
    return document


def _target(document: Document) -> str:
    entry = document.entries.get(("landing", "target"))
    return str(entry.value) if entry else ""


def _part(document: Document, *, trust: bool) -> dict[keys.Path, Entry]:
    return {path: entry for path, entry in document.entries.items() if needs_trust(path) == trust}


def needs_trust(path: keys.Path) -> bool:
    """Can the key at this path execute or loosen?"""
    key = keys.find(path)
    return key is not None and key.trust


def _text(path: Path) -> str | None:
    data = content(path, link=False)
    return None if data is None else _decoded(data)


def _decoded(content: bytes) -> str:
    return content.decode(errors="replace")


def _repository_mark(git: Path) -> object:
    """Changes when `probe` could answer something else; None when files can not tell."""
    if not _plain_refs(git):
        return None
    heads = [git / "HEAD", git / "config", git / "refs/heads/main", git / "refs/heads/master", *_remotes(git)]
    return (tuple(_quick(head) for head in heads), _packed(git))


def _branch_mark(git: Path, branch: str) -> object:
    """Changes when the branch moves; None when files can not tell."""
    if not _plain_refs(git):
        return None
    return (*(_quick(git / "refs" / place / branch) for place in _PLACES), _packed(git))


def _plain_refs(git: Path) -> bool:
    """Does the repository keep its refs in files, and here?"""
    return git.is_dir() and not (git / "reftable").exists()


def _remotes(git: Path) -> list[Path]:
    try:
        return sorted(remote / "HEAD" for remote in (git / "refs/remotes").iterdir())
    except OSError:
        return []


def _packed(git: Path) -> object:
    try:
        status = (git / "packed-refs").stat()
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _quick(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
