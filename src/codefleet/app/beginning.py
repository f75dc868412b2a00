"""`init` and `trust`: a home, a project's settings, and what a person allows a repository to run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from codefleet.app import projects
from codefleet.app.documents import Document
from codefleet.core.errors import CodeFleetError, InvalidInput
from codefleet.core.model import Status
from codefleet.ports import Check, Filter

if TYPE_CHECKING:
    from codefleet.app.answers import Place
    from codefleet.app.fleet import Fleet
    from codefleet.config import Resolved
    from codefleet.config.detect import Type

EXCLUDED = ".codefleet/run/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What `init` found and made."""

    home: Path
    written: Sequence[Path]
    place: Place | None
    resolved: Resolved | None
    kind: str = ""
    """The type of the project, when its settings were written now."""


async def init(fleet: Fleet, path: Path, *, kind: str = "", home_only: bool = False, force: bool = False) -> Begun:
    """The home's file, and in a repository the project's: what is there stays. With `force` both are written anew,
    and the earlier ones kept beside them."""
    _known(kind)
    written = await anyio.to_thread.run_sync(_home_file, fleet, force)
    repository = None if home_only else await fleet.workspaces.probe(path)
    if repository is None or not repository.git:
        return Begun(home=fleet.home.path, written=written, place=None, resolved=None)
    more, found = await anyio.to_thread.run_sync(
        _project_file, repository.path, repository.default_target or repository.branch, kind, force
    )
    await fleet.workspaces.exclude(repository.path, [EXCLUDED])
    place = await fleet.place(repository.path)
    await _lift(fleet, repository.path, "setup")
    resolved = await fleet.configuration.resolve(repository.path)
    return Begun(home=fleet.home.path, written=[*written, *more], place=place, resolved=resolved, kind=found)


def _known(kind: str) -> None:
    from codefleet.config.detect import TYPES

    if kind and kind not in TYPES:
        raise InvalidInput(f"{kind!r} is no type of project", hint=f"one of: {' '.join(TYPES)}")


def _home_file(fleet: Fleet, force: bool) -> list[Path]:
    from codefleet.config.initial import runtime_toml

    path = fleet.home.settings
    for folder in (fleet.home.path / "tasks", fleet.home.logging):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _put(path, runtime_toml(), 0o600, force=force)


def _project_file(repository: Path, target: str, kind: str, force: bool) -> tuple[list[Path], str]:
    from typing import cast

    from codefleet.config.detect import detect
    from codefleet.config.initial import codefleet_toml
    from codefleet.config.target import project_file

    path = project_file(repository)
    if path.exists() and not force:
        return [], ""
    found = detect(repository, cast("Type", kind) if kind else None)
    return _put(path, codefleet_toml(repository.name, target, found), 0o644, force=force), found.type


def _put(path: Path, text: str, mode: int, *, force: bool) -> list[Path]:
    """Write a file that is not there; with `force` the one that is there is kept as `NAME.before`."""
    from codefleet.config.files import replace_file

    if path.exists():
        if not force or path.read_text(errors="replace") == text:
            return []
        replace_file(path.with_name(path.name + ".before"), path.read_text(errors="replace"), mode)
    replace_file(path, text, mode)
    return [path]


# ---------------------------------------------------------------------------------------------------------- trust


async def asked(fleet: Fleet, path: Path) -> Resolved:
    """What a repository asks to be trusted with."""
    repository = await fleet.workspaces.probe(path)
    return await fleet.configuration.resolve(repository.path)


def items(fleet: Fleet, resolved: Resolved) -> list[Document]:
    """Each thing that would be allowed, in words."""
    from codefleet.config import trust

    found = trust.show(fleet.home, resolved.asked)
    return [{"key": item.key, "words": item.words, "state": item.state.value} for item in found]


async def give(fleet: Fleet, resolved: Resolved) -> None:
    """Allow exactly what was shown; tasks that waited for that may start."""
    from codefleet.config import trust

    await anyio.to_thread.run_sync(trust.give, fleet.home, resolved.asked)
    await _lift(fleet, resolved.asked.repository, "trust")


async def _lift(fleet: Fleet, repository: Path, kind: str) -> None:
    """What its tasks waited for has been done: they may be tried again."""
    known = await projects.every(fleet.store)
    for project in [one for one in known if one.paths.get(fleet.host) == str(repository)]:
        waiting, _ = await fleet.tasks(Filter(status=(Status.PENDING,), project=project.id), 1 << 20)
        for task in waiting:
            await fleet.backlog.lift(task.id, kind)


async def revoke(fleet: Fleet, path: Path) -> bool:
    """Allow a repository nothing any more; False when it was not trusted."""
    from codefleet.config import trust

    repository = await fleet.workspaces.probe(path)
    return await anyio.to_thread.run_sync(trust.revoke, fleet.home, repository.path)


# --------------------------------------------------------------------------------------------------------- agents


async def agents(fleet: Fleet, types: Sequence[str] = ()) -> Mapping[str, Check]:
    """Which agent types are installed and logged in; each is looked at once, all at the same time."""
    from codefleet.drivers import Installed

    settings = fleet.configuration.home()
    found: dict[str, Check] = {}

    async def look(name: str) -> None:
        try:
            found[name] = await Installed().driver(name, settings.agents[name]).check(fleet.environ)
        except CodeFleetError as error:
            found[name] = Check(installed=False, detail=error.message)

    async with anyio.create_task_group() as group:
        for name in types or settings.agents:
            group.start_soon(look, name)
    return {name: found[name] for name in sorted(found)}
