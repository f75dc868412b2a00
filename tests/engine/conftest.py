"""An engine on real parts but for the store and the configuration: real git, real processes, the scripted agent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from codefleet.core.layout import Home
from codefleet.core.model import Project
from codefleet.core.settings import AgentType, Gate, Limits, Settings
from codefleet.drivers import Installed
from codefleet.engine.parts import Parts
from codefleet.ports import SystemClock
from codefleet.processes.presence import FilePresence
from codefleet.processes.spools import Spools
from codefleet.stores.memory import MemoryStore
from codefleet.testing.fleets import PROJECT, Configured, Fleet, git
from codefleet.workspaces import GitWorkspaces


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    git(path, "config", "user.name", "Somebody")
    git(path, "config", "user.email", "somebody@localhost")
    (path / "README.md").write_text("# A project\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "Begin")
    return path


@pytest.fixture
async def fleet(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    home = Home(tmp_path / "home")
    home.path.mkdir(mode=0o700)
    clock = SystemClock()
    store = MemoryStore(clock)
    await store.open()
    await store.add(Project(id=PROJECT, name="project", paths={"here": str(repository)}, created_at=clock.now()))
    configured = Configured(
        Settings(
            agents={"scripted": AgentType(driver="scripted")},
            agent=replace(Settings().agent, default="scripted"),
            gates=(Gate(name="always", command="true"),),
            limits=Limits(attempts=2),
            poll_interval=0.3,
            min_free_disk=0,
            shutdown_grace=10,
        )
    )
    processes = Spools(clock)
    await processes.open()
    parts = Parts(
        home=home,
        home_id="h0123456789",
        host="here",
        store=store,
        processes=processes,
        presence=FilePresence(home),
        workspaces=GitWorkspaces(home.path / "quarantine"),
        drivers=Installed(),
        configuration=configured,
        clock=clock,
        environ=os.environ,
    )
    yield Fleet(parts, configured, repository)
    await processes.close()
    await store.close()
