"""What `doctor` looks at, and what it repairs because it can prove what is right."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codefleet.app import beginning
from codefleet.core.errors import CodeFleetError
from codefleet.core.model import Task
from codefleet.engine import views
from codefleet.ports import ChildState, Filter

if TYPE_CHECKING:
    from codefleet.app.fleet import Fleet

OTHERS = "codefleet"
"""The name under which a package index has another program of the same import name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool | None
    """None: worth knowing, no fault."""
    text: str
    hint: str = ""
    fixed: bool = False


async def examine(fleet: Fleet, *, fix: bool) -> AsyncIterator[Finding]:
    """Everything worth knowing, thing by thing; with `fix` what can be repaired is."""
    for look in (_program, _git, _home, _settings, _store, _agents, _project, _engines, _children, _views):
        try:
            async for finding in look(fleet, fix):
                yield finding
        except CodeFleetError as error:
            yield Finding(name=look.__name__.strip("_"), ok=False, text=error.message, hint=error.hint)


async def _program(_: Fleet, __: bool) -> AsyncIterator[Finding]:
    import platform
    from importlib import metadata

    from codefleet import __version__
    from codefleet.processes.guard import kernel

    yield Finding(name="codefleet", ok=True, text=f"codefleet {__version__} on Python {platform.python_version()}")
    if kernel.PORTABLE:
        text = "children are kept the portable way, which is written for macOS and untested there"
        yield Finding(name="system", ok=None, text=text, hint="see docs/decisions/0002-children-on-spools.md")
    others = [one.metadata["Name"] for one in metadata.distributions() if one.metadata["Name"] == OTHERS]
    if others:
        yield Finding(
            name="codefleet",
            ok=False,
            text="another distribution called codefleet is installed in the same environment",
            hint="remove it: `pip uninstall codefleet`; ours is codefleet-commander",
        )


async def _git(_: Fleet, __: bool) -> AsyncIterator[Finding]:
    from codefleet.workspaces import git

    await anyio.to_thread.run_sync(git.check_version)
    version = await anyio.to_thread.run_sync(git.run, Path("/"), "version")
    yield Finding(name="git", ok=True, text=version.text)


async def _home(fleet: Fleet, fix: bool) -> AsyncIterator[Finding]:
    path = fleet.home.path
    if fleet.missing:
        yield Finding(name="home", ok=None, text=f"there is no fleet in {path} yet", hint="codefleet init")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    free = shutil.disk_usage(path).free
    yield Finding(name="home", ok=True, text=f"{path}, {free >> 20} MB free")
    if mode & 0o077:
        if fix:
            path.chmod(0o700)
        yield Finding(
            name="home", ok=False, text=f"others may look into {path} ({mode:o})", hint="chmod 700", fixed=fix
        )
    least = fleet.configuration.home().min_free_disk
    if free < least:
        yield Finding(name="home", ok=False, text=f"less than {least >> 20} MB are free", hint="make room")


async def _settings(fleet: Fleet, _: bool) -> AsyncIterator[Finding]:
    for warning in fleet.configuration.warnings:
        yield Finding(name="settings", ok=False, text=warning, hint="codefleet config validate")


async def _store(fleet: Fleet, _: bool) -> AsyncIterator[Finding]:
    if fleet.missing:
        return
    counts = await fleet.store.counts()
    backups = await anyio.to_thread.run_sync(lambda: sorted(fleet.home.backups.glob("*")))
    newest = f", newest backup {backups[-1].name}" if backups else ", no backup yet"
    yield Finding(name="store", ok=True, text=f"{fleet.home.database}: {sum(counts.values())} tasks{newest}")


async def _agents(fleet: Fleet, _: bool) -> AsyncIterator[Finding]:
    checks = await beginning.agents(fleet)
    default = fleet.configuration.home().agent.default
    for name, check in checks.items():
        words = agent_words(name, check.version, check.logged_in, installed=check.installed)
        usable = check.installed and check.logged_in is not False
        text = f"{words}; {check.detail}" if check.detail else words
        hint = f"install it and log in; `codefleet pause {name}` keeps tasks waiting" if name == default else ""
        yield Finding(name="agent", ok=True if usable else False if name == default else None, text=text, hint=hint)


def agent_words(name: str, version: str, logged_in: bool | None, *, installed: bool) -> str:
    """What is known of an agent type in a line."""
    if not installed:
        return f"{name}: not installed"
    login = {True: ", logged in", False: ", not logged in", None: ""}[logged_in]
    return f"{name}: {version or 'installed'}{login}"


async def _project(fleet: Fleet, _: bool) -> AsyncIterator[Finding]:
    repository = await fleet.workspaces.probe(fleet.cwd)
    if not repository.git:
        return
    resolved = await fleet.configuration.resolve(repository.path)
    settings, state = resolved.settings, resolved.state.value
    gates = f"{len(settings.gates)} gates" if settings.gates else "no gates, so work is unproven"
    trusted = settings.trusted
    text = f"{settings.project.name}: {gates}, policy {settings.policy}, trust: {state}"
    yield Finding(
        name="project", ok=None if not trusted else True, text=text, hint="" if trusted else "codefleet trust"
    )


async def _engines(fleet: Fleet, fix: bool) -> AsyncIterator[Finding]:
    """Engines that ended without a word and own nothing are forgotten; what they own, the next start adopts."""
    for engine in await fleet.store.engines():
        alive = engine.host != fleet.host or fleet.presence.alive(engine.id)
        if alive:
            yield Finding(name="engine", ok=True, text=f"{engine.name or engine.id} on {engine.host}, pid {engine.pid}")
            continue
        owns = await fleet.store.owned_by(engine.id)
        if fix and not owns:
            await fleet.store.retire(engine.id)
        text = f"{engine.name or engine.id} has ended without a word" + (f" and owns {', '.join(owns)}" if owns else "")
        hint = "`codefleet start` adopts its work" if owns else "--fix forgets it"
        yield Finding(name="engine", ok=False if owns else None, text=text, hint=hint, fixed=fix and not owns)


async def _children(fleet: Fleet, _: bool) -> AsyncIterator[Finding]:
    """Children that run although no task knows of them."""
    from codefleet.processes.spools import Spools

    spools = Spools(fleet.clock)
    for folder in await anyio.to_thread.run_sync(lambda: sorted((fleet.home.path / "spool").glob("*/*-*"))):
        status = spools.peek(folder)
        if status.state in {ChildState.STARTING, ChildState.RUNNING} and not await _is_wanted(
            fleet, folder.parent.name
        ):
            text = f"{folder.parent.name}/{folder.name} runs (pid {status.pid}) and no task waits for it"
            yield Finding(name="process", ok=False, text=text, hint="`codefleet start` ends what nobody wants")


async def _is_wanted(fleet: Fleet, run: str) -> bool:
    found = await fleet.store.get(Task, [run.rpartition(".")[0]])
    runs = [one for held in found for one in (held.value.run, *held.value.lingering) if one and not one.ended]
    return any(one.id == run for one in runs)


async def _views(fleet: Fleet, fix: bool) -> AsyncIterator[Finding]:
    """The files under `tasks/` are written again from the store."""
    if not fix or fleet.missing:
        return
    number = 0
    tasks, _ = await fleet.tasks(Filter(), 1 << 20)
    for task in tasks:
        facts = await fleet.store.facts("", 10_000, task=task.id)
        runs = await fleet.runs(task.id)
        activity = [item for run in runs for item in await fleet.store.activity(run.id, -1, 100_000)]
        await anyio.to_thread.run_sync(views.write, fleet.home, task, runs, activity, facts)
        number += 1
    yield Finding(name="views", ok=True, text=f"the files of {number} tasks say what the store says", fixed=True)
