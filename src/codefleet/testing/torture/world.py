"""A world to torture: a real repository, a home with real storage, and backlogs for scripted agents."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codefleet.core.layout import Home
from codefleet.testing.torture import actor

Step = dict[str, Any]

SETTINGS = """
poll_interval = 1
log_status_interval = 3600

[agent]
default = "scripted"

[limits]
attempts = 40
rounds = 40
"""
GATE = """
[gates.no-red]
command = ["sh", "-c", "sleep 0.02; test ! -e RED"]
"""


@dataclass(frozen=True, slots=True)
class World:
    """Everything under one folder; nothing of the user's is touched."""

    path: Path

    @property
    def home(self) -> Home:
        return Home(self.path / "home")

    @property
    def repository(self) -> Path:
        return self.path / "repository"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger"

    @property
    def environ(self) -> Mapping[str, str]:
        """For every process of this world; the marker is inherited by all that they start."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.path),
            "CODEFLEET_HOME": str(self.home.path),
            "CODEFLEET_TEST": str(self.path),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }

    def git(self, *argv: str) -> str:
        done = subprocess.run(
            ["git", *argv], cwd=self.repository, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    def codefleet(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program(), *argv], cwd=self.repository, env=self.environ, capture_output=True, text=True, check=False
        )

    def entries(self, kind: str) -> Iterator[dict[str, Any]]:
        """What really happened, in order."""
        file = self.ledger / "ledger.jsonl"
        for line in file.read_text().splitlines() if file.exists() else ():
            entry = json.loads(line)
            if entry["kind"] == kind:
                yield entry


def program() -> list[str]:
    return [sys.executable, "-m", "codefleet"]


def make(path: Path) -> World:
    """A new world with a trusted project."""
    world = World(path)
    for folder in (world.home.path, world.repository, world.ledger):
        folder.mkdir(parents=True, mode=0o700)
    world.git("init", "-q", "-b", "main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("gc.auto", "0")):
        world.git("config", key, value)
    (world.repository / "README.md").write_text("# A project\n")
    (world.repository / "codefleet.toml").write_text(GATE)
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "Begin")
    world.home.settings.write_text(SETTINGS)
    done = world.codefleet("init", "--trust")
    if done.returncode:
        raise RuntimeError(f"the project could not be trusted: {done.stderr}")
    return world


# ---------------------------------------------------------------------------------------------------------- backlog


def acting(world: World, *words: str) -> list[str]:
    """The command line of something that an agent does."""
    return [sys.executable, "-I", "-S", actor.__file__, str(world.ledger), *words]


def script(world: World, kind: str, rng: random.Random) -> str:
    """What an agent does for a task of this kind. All of them can be completed, whoever is killed meanwhile."""
    lines = "\n".join(json.dumps(step) for step in _steps(world, kind, rng))
    return f"```script\n{lines}\n```\n"


def _steps(world: World, kind: str, rng: random.Random) -> list[Step]:
    stray: Step = {"spawn": acting(world, "stray"), "setsid": True, "ignore": ["TERM", "INT", "HUP"]}
    write: Step = {"run": acting(world, "write")}
    left: Step = {"run": acting(world, "write", "left")}
    done: Step = {"result": {"status": "completed", "summary": f"a task of kind {kind}"}}
    work = [stray, write, _pause(rng), {"commit": "Work"}, _pause(rng), left, done, *_leave(world, 0)]
    if kind == "again":
        return [*_in("run 1", [stray, write, *_leave(world, 3)]), *work]
    if kind == "crash":
        return [*_in("run 1", [write, _pause(rng), {"signal": "SEGV"}]), *work]
    if kind == "red":
        return [
            {"write": "RED", "text": "red"},
            *work,
            *_in("round 2", [{"delete": "RED"}, write, done, *_leave(world, 0)]),
        ]
    return work


def _pause(rng: random.Random) -> Step:
    return {"sleep": round(rng.uniform(0, 0.3), 3)}


def _leave(world: World, code: int) -> list[Step]:
    return [{"run": acting(world, "exit", str(code))}, {"exit": code}]


def _in(where: str, steps: Sequence[Step]) -> list[Step]:
    return [{**step, "on": where} for step in steps]


KINDS = ("plain", "again", "crash", "red")


def key_of(printed: str) -> str:
    """The id of the task that `add --json` printed."""
    return str(json.loads(printed)["data"]["task_id"])
