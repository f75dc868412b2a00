"""A home and a project on disk, and branches that are kept in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codefleet.config import Configured, Resolved
from codefleet.core.layout import Home
from codefleet.core.settings import Settings
from codefleet.ports import Repository


@dataclass
class Branches:
    """What `Configured` asks of git: the files of branches. Without branches it is a folder without git."""

    files: dict[str, dict[str, str]] = field(default_factory=dict)
    default: str = "main"

    async def probe(self, path: Path) -> Repository:
        git = bool(self.files)
        return Repository(path=path, git=git, branch=self.default, default_target=self.default if git else "")

    async def show(self, repository: Path, commit: str, path: str) -> bytes | None:
        text = self.files.get(commit, {}).get(path)
        return None if text is None else text.encode()


@dataclass(frozen=True)
class Place:
    """A home, a project and its branches, with short ways to write and read settings."""

    home: Home
    project: Path
    branches: Branches

    def write_home(self, text: str) -> None:
        self.home.settings.write_text(text)

    def write_project(self, text: str, name: str = "codefleet.toml") -> None:
        path = self.project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def configured(
        self, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
    ) -> Configured:
        return Configured(self.home, self.branches, {"HOME": "/people/ada", **(environ or {})}, flags)

    def of_home(self, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> Settings:
        return self.configured(environ, flags).home()

    async def of_project(self, environ: Mapping[str, str] | None = None) -> Settings:
        return (await self.resolved(environ)).settings

    async def resolved(self, environ: Mapping[str, str] | None = None) -> Resolved:
        return await self.configured(environ).resolve(self.project)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, project = tmp_path / "home", tmp_path / "shop"
    home.mkdir()
    project.mkdir()
    return Place(Home(home), project, Branches({"main": {}}))
