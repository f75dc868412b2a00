"""`config`: what holds here, changing it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from codefleet.app import homes
from codefleet.app.documents import Document
from codefleet.config import edit, show, target
from codefleet.config.validate import validate
from codefleet.core.errors import InvalidInput
from codefleet.core.layout import Home

if TYPE_CHECKING:
    from codefleet.app.fleet import Fleet


async def repository(fleet: Fleet) -> Path | None:
    """The repository that a person stands in, or a folder that has settings of its own; else nothing."""
    found = await fleet.workspaces.probe(fleet.cwd)
    return found.path if found.git or has_file(found.path) else None


def has_file(folder: Path) -> bool:
    """Does a project's settings file lie there?"""
    return target.project_file(folder).exists()


async def rows(fleet: Fleet) -> tuple[list[Document], list[str]]:
    """All settings that hold here, and what a person should know about them."""
    folder = await repository(fleet)
    resolved = await fleet.configuration.resolve(folder) if folder else None
    settings = resolved.settings if resolved else fleet.configuration.home()
    found = [
        {"key": row.key, "value": row.value, "origin": row.origin, "text": row.text} for row in show.rows(settings)
    ]
    more = [] if settings.trusted else ["settings that can execute something are left out: `codefleet trust`"]
    warnings = dict.fromkeys([*fleet.configuration.warnings, *(resolved.warnings if resolved else ()), *more])
    return found, list(warnings)


def file(home: Home, folder: Path | None, *, project: bool) -> Path:
    """The home's file, or the project's."""
    if not project:
        return home.settings
    if folder is None:
        raise no_project()
    return target.project_file(folder)


def no_project() -> InvalidInput:
    """What to say where a project is needed and none is."""
    return InvalidInput("this is no project", hint="go to a repository, or name one with -C")


def change(home: Home, folder: Path | None, assignments: Iterable[str], *, project: bool) -> Path:
    """Set values in the home's file or in the project's; which file it was."""
    homes.make(home)
    if not project:
        return edit.set_in_home(home, assignments, folder)
    if folder is None:
        raise no_project()
    return edit.set_in_project(home, assignments, folder)


def problems(home: Home, folder: Path | None) -> list[Document]:
    """What is wrong with the settings files."""
    return [{"text": problem.text, "hint": problem.hint} for problem in validate(home, folder)]
