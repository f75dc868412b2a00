"""A person at a terminal: a home, a repository, and the commands as a person gives them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from codefleet.cli.running import run
from codefleet.core.layout import Home
from codefleet.core.model import Aggregate
from codefleet.ports import Store, SystemClock
from codefleet.stores.sqlite import SqliteStore


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        found = json.loads(self.out)
        assert found["schema_version"] == 1
        return found["data"]


class _Output(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        self.flush()
        held = self.buffer
        assert isinstance(held, io.BytesIO)
        return held.getvalue().decode()


class Person:
    """Gives commands in a folder, with a home of their own."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home = Home(home)
        self.cwd = cwd

    def __call__(self, *args: str, stdin: str = "") -> Said:
        """In this process: the same code that the entry point runs."""
        out, err = _Output(), _Output()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.cwd)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(list(args))
        return Said(code, out.text, err.text)

    def program(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """As a process of its own."""
        command = [sys.executable, "-m", "codefleet", *args]
        return subprocess.run(command, cwd=self.cwd, capture_output=True, text=True, check=False, timeout=60, **more)

    def added(self, title: str, *args: str) -> str:
        """The id of a new task."""
        said = self("add", title, "--json", "-q", *args)
        assert said.code == 0, said.err
        return str(said.data["id"])

    def store(self, *things: Aggregate) -> None:
        """Put aggregates into the store as they are."""

        async def put(store: Store) -> None:
            for thing in things:
                await store.add(thing)

        self.with_store(put)

    def with_store(self, act: Callable[[Store], Awaitable[object]]) -> None:
        """Do something to the store itself."""

        async def opened() -> None:
            store = SqliteStore(self.home.database, wake=self.home.wake, backups=self.home.backups, clock=SystemClock())
            await store.open()
            await act(store)
            await store.close()

        self.home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        anyio.run(opened)

    def git(self, *args: str) -> str:
        return git(self.cwd, *args)

    def ids(self) -> list[str]:
        return [task["id"] for task in self("tasks", "--all", "--json", "-q").data]


IDENTITY = {f"GIT_{role}_NAME": "A Person" for role in ("AUTHOR", "COMMITTER")} | {
    f"GIT_{role}_EMAIL": "person@example.com" for role in ("AUTHOR", "COMMITTER")
}


def git(folder: Path, *args: str) -> str:
    """Git, for the test's own needs."""
    done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    """A repository with one commit on main."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README.md").write_text("# A project\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Begin")
    return folder


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository to be copied: making one takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in IDENTITY.items():
            patch.setenv(name, value)
        return repository(tmp_path_factory.mktemp("template") / "project")


@pytest.fixture
def person(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Somebody in a fresh repository, with no fleet yet."""
    for name in [name for name in os.environ if name.startswith(("CODEFLEET_", "FLEET_"))]:
        if name != "CODEFLEET_TEST":
            monkeypatch.delenv(name)
    human = tmp_path / "human"
    human.mkdir()
    shutil.copytree(template, tmp_path / "work" / "project")
    values = IDENTITY | {"HOME": str(human), "CODEFLEET_HOME": str(tmp_path / "home"), "NO_COLOR": "1", "TZ": "UTC"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return Person(tmp_path / "home", tmp_path / "work" / "project")
