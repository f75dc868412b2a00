"""A home, a repository and tasks to measure with, and an engine in this process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from codefleet.app import Fleet, open_fleet
from codefleet.app.homes import make
from codefleet.core.drafts import Draft
from codefleet.core.layout import Home
from codefleet.core.model import Fact
from codefleet.drivers import Installed
from codefleet.engine.engine import Engine
from codefleet.engine.parts import Parts
from codefleet.processes.presence import FilePresence
from codefleet.processes.spools import Spools

STUB = """
[agents.stub]
driver = "command"
command = ["sh", "-c", 'echo done > "file-$CODEFLEET_TASK_ID"']
[agents.sleeper]
driver = "command"
command = ["sleep", "600"]
[agent]
default = "stub"
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path, files: int = 50) -> Path:
    """A repository with some files and one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Bench")
    git(folder, "config", "user.email", "bench@localhost")
    for number in range(files):
        (folder / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 20)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "begin")
    return folder


def settings(home: Path, more: str = "") -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "runtime.toml").write_text(STUB + more)


@asynccontextmanager
async def fleet(folder: Path, policy: str = "none", gates: str = "") -> AsyncIterator[Fleet]:
    """A fleet in a new home with a trusted repository."""
    from codefleet.app import beginning

    settings(folder / "home")
    repo = repository(folder / "repo")
    (repo / "codefleet.toml").write_text(f'[landing]\ntarget = "main"\npolicy = "{policy}"\n{gates}')
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "settings")
    async with open_fleet(Home(folder / "home"), environ=os.environ, cwd=repo) as opened:
        await beginning.give(opened, await beginning.asked(opened, repo))
        yield opened


async def chain(opened: Fleet, length: int) -> list[str]:
    """Tasks of which each builds on the one before; their ids."""
    keys: list[str] = []
    for number in range(length):
        added = await opened.add(Draft(title=f"Link {number}", depends_on=tuple(keys[-1:])))
        keys.append(added.task.id)
    return keys


async def loose(opened: Fleet, count: int, agent: str = "") -> list[str]:
    """Tasks that need nothing of one another."""
    return [(await opened.add(Draft(title=f"Task {n}", agent=agent))).task.id for n in range(count)]


@asynccontextmanager
async def engine(
    opened: Fleet, slots: int, *, wrap: Callable[[Parts], Parts] = lambda parts: parts, until_idle: bool = True
) -> AsyncIterator[Engine]:
    """An engine over the fleet's own store, ready to run."""
    processes = Spools(opened.clock)
    await processes.open()
    parts = Parts(
        home=opened.home,
        home_id=make(opened.home),
        host=opened.host,
        store=opened.store,
        processes=processes,
        presence=FilePresence(opened.home),
        workspaces=opened.workspaces,
        drivers=Installed(),
        configuration=opened.configuration,
        clock=opened.clock,
        environ=opened.environ,
    )
    try:
        yield Engine(wrap(parts), slots=slots, until_idle=until_idle)
    finally:
        await processes.close()


async def facts(opened: Fleet, kind: str, keys: Sequence[str]) -> dict[str, Fact]:
    """The last fact of a kind of each of these tasks."""
    found: dict[str, Fact] = {}
    position = ""
    while page := await opened.store.facts(position, 10_000):
        position = page[-1].position
        found |= {fact.task_id: fact for fact in page if fact.kind == kind and fact.task_id in keys}
    return found


def replaced(parts: Parts, **changes: Any) -> Parts:
    return replace(parts, **changes)
