"""Which project a path belongs to: a stored id and name, with the path that it has on each host."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from codefleet.core.errors import Exists, Stale
from codefleet.core.model import Fact, Instant, Project
from codefleet.ports import Filter, Held, Page, Store

SPACE = uuid.UUID("6a1c3f6e-54a4-4a0c-9d0e-0d2f3c1b7a55")


async def every(store: Store) -> list[Project]:
    found: list[Project] = []
    page = await store.find(Project, Filter(), Page(limit=500))
    found.extend(page.items)
    while page.after:
        page = await store.find(Project, Filter(), Page(limit=500, after=page.after))
        found.extend(page.items)
    return found


async def at(store: Store, host: str, path: Path) -> Project | None:
    """The project that lies at this path on this host."""
    return next((one for one in await every(store) if one.paths.get(host) == str(path)), None)


async def named(store: Store, name: str) -> list[Project]:
    """Projects of this id or name."""
    return [one for one in await every(store) if name in {one.id, one.name}]


async def take_in(store: Store, host: str, path: Path, name: str, now: Instant) -> tuple[Project, bool]:
    """The project of a path, made on first use (then True). One that has moved here keeps its id.

    Its first id follows from host and path, so that two callers at once make one project.
    """
    known = await at(store, host, path)
    if known:
        return known, False
    moved = [one for one in await named(store, name) if _gone(one, host)]
    if len(moved) == 1:
        return await _move(store, moved[0], host, path), True
    return await _add(store, host, path, name, now), True


def _gone(project: Project, host: str) -> bool:
    """Its folder is not on this host any more."""
    there = project.paths.get(host)
    return bool(there) and not Path(str(there)).exists()


async def _move(store: Store, project: Project, host: str, path: Path) -> Project:
    while True:
        [held] = await store.get(Project, [project.id])
        try:
            return (await store.commit(held, replace(held.value, paths={**held.value.paths, host: str(path)}))).value
        except Stale:
            continue


async def _add(store: Store, host: str, path: Path, name: str, now: Instant) -> Project:
    key = str(uuid.uuid5(SPACE, f"{host}\0{path}"))
    project = Project(id=key, name=name, paths={host: str(path)}, created_at=now)
    said = Fact(kind="project_added", at=now, by="person", project=key, data={"name": name, "path": str(path)})
    try:
        return (await store.add(project, [said])).value
    except Exists:
        return await _taken(store, project, host)


async def _taken(store: Store, project: Project, host: str) -> Project:
    """Somebody made it a moment ago, or the id belongs to a project that has moved away."""
    [held] = await store.get(Project, [project.id])
    there: Held[Project] = held
    if there.value.paths.get(host) == project.paths[host]:
        return there.value
    other = replace(project, id=str(uuid.uuid4()))
    said = Fact(kind="project_added", at=project.created_at, by="person", project=other.id, data={"name": other.name})
    return (await store.add(other, [said])).value
