"""Where everything lies in a home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """The folder in which this machine keeps its fleet. Only names; nothing here touches the disk."""

    path: Path

    @property
    def id_file(self) -> Path:
        return self.path / "home.id"

    @property
    def settings(self) -> Path:
        return self.path / "runtime.toml"

    @property
    def trust(self) -> Path:
        return self.path / "trust.json"

    @property
    def database(self) -> Path:
        return self.path / "codefleet.db"

    @property
    def wake(self) -> Path:
        return self.path / "wake"

    @property
    def logging(self) -> Path:
        return self.path / "logging"

    @property
    def backups(self) -> Path:
        return self.path / "backups"

    @property
    def templates(self) -> Path:
        return self.path / "templates"

    @property
    def start_lock(self) -> Path:
        return self.path / "engines" / "start.lock"

    def engine_lock(self, engine: str) -> Path:
        return self.path / "engines" / engine / "lock"

    def spools(self, run: str) -> Path:
        """The folder of a run's spools; one child each: `<kk>-<setup|agent|gate>`."""
        return self.path / "spool" / run

    def task(self, task: str) -> Path:
        return self.path / "tasks" / task

    def artifacts(self, task: str, number: int = 0) -> Path:
        """The artifacts of a task; with a number, the copy that a run gets while an older one is not over."""
        return self.task(task) / (f"artifacts.{number}" if number else "artifacts")

    def requests(self, task: str) -> Path:
        return self.artifacts(task) / ".requests"

    def run(self, task: str, number: int) -> Path:
        return self.task(task) / "runs" / str(number)

    def worktrees(self, project: str) -> Path:
        return self.path / "worktrees" / project

    def quarantine(self, run: str) -> Path:
        return self.path / "quarantine" / run
