"""Everything that is wrong with the settings files, found without running anything."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from codefleet.config import keys, merging
from codefleet.config.document import Document, Place, Problem, read
from codefleet.config.files import content
from codefleet.config.target import label, project_file
from codefleet.config.values import expanded
from codefleet.core.errors import ConfigError
from codefleet.core.layout import Home
from codefleet.core.settings import Settings


def validate(home: Home, repository: Path | None = None) -> tuple[Problem, ...]:
    """What is wrong with the home's file and, with a repository, with the project's."""
    try:
        documents = [_document(home.settings, Place.HOME)]
        if repository:
            documents.append(_project(repository))
    except ConfigError as error:
        return (Problem(error.message, error.hint),)
    wrong = tuple(problem for document in documents for problem in document.problems)
    return wrong or tuple(_together(documents, repository or home.path))


def _project(repository: Path) -> Document:
    if sum((repository / name).is_file() for name in keys.PROJECT_FILES) > 1:
        raise ConfigError(f"{' and '.join(keys.PROJECT_FILES)} are both there", hint="Keep one of them.")
    return _document(project_file(repository), Place.PROJECT)


def _document(path: Path, place: Place) -> Document:
    return read(content(path) or b"", label(path, place), place)


def _together(documents: Sequence[Document], folder: Path) -> Iterator[Problem]:
    try:
        settings = merging.settings(merging.merged(document.entries for document in documents))
    except ConfigError as error:
        yield Problem(error.message, error.hint)
        return
    if problem := unknown_agent(settings):
        yield problem
    yield from _paths(settings, folder)


def unknown_agent(settings: Settings, others: Collection[str] = ()) -> Problem | None:
    """Is the default agent one that nobody has configured, here or elsewhere?"""
    chosen = settings.agent.default
    if chosen in settings.agents or chosen in others:
        return None
    known = ", ".join(settings.agents)
    place = settings.origin.get("agent.default", "")
    return Problem(
        f"{place}: there is no agent type {chosen}", f"There are {known}; others need a table [agents.NAME]."
    )


def _paths(settings: Settings, folder: Path) -> Iterator[Problem]:
    """Files and folders that are named and will not do."""
    for pattern in settings.setup.credential_files:
        if not _found(folder, pattern):
            yield _about(settings, "setup.credential_files", f"there is no {pattern}")
    root = folder / expanded(settings.project.worktree_root, str(Path.home()))
    if settings.project.worktree_root and (why := _unusable(root)):
        yield _about(settings, "project.worktree_root", f"{root} {why}")
    for name, agent in settings.agents.items():
        if agent.script and not (folder / expanded(agent.script, str(Path.home()))).is_file():
            yield _about(settings, keys.dotted(("agents", name, "script")), f"there is no {agent.script}")


def _found(folder: Path, pattern: str) -> bool:
    try:
        return any(folder.glob(pattern))
    except ValueError:  # no pattern at all
        return False


def _unusable(root: Path) -> str:
    """Why worktrees can not be made in a folder; empty when they can."""
    nearest = next(path for path in (root, *root.parents) if path.exists())
    if not nearest.is_dir():
        return "is no folder" if nearest == root else f"lies in {nearest}, which is no folder"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else "can not be written"


def _about(settings: Settings, key: str, text: str) -> Problem:
    return Problem(f"{settings.origin.get(key, '')}: {key}: {text}")
