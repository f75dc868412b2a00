"""What the façade answers with, beside documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codefleet.core.errors import CodeFleetError
from codefleet.core.model import Project, Task
from codefleet.core.settings import Settings
from codefleet.ports import Repository


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person stands: the repository or folder, its project and what is configured there."""

    repository: Repository
    project: Project
    settings: Settings
    fresh: bool
    """The project was made just now."""


@dataclass(frozen=True, slots=True)
class Added:
    task: Task
    place: Place
    near: Sequence[Task]
    """Open tasks with nearly the same title."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of several tasks: those that were changed, and why others were not."""

    tasks: Sequence[Task]
    refused: Sequence[CodeFleetError]
