"""What of an aggregate stands in columns beside its document."""

from __future__ import annotations

from typing import Any

from codefleet.core.model import Aggregate, Task
from codefleet.stores import documents

#: One string of columns, in the order of the statements.
Columns = tuple[Any, ...]


def of_task(task: Task, document: bytes) -> Columns:
    """The columns of a task behind its lane."""
    return (
        task.project,
        task.status.value,
        task.rank,
        int(documents.is_ready(task)),
        documents.lift_at(task),
        task.hold.on if task.hold is not None else None,
        documents.asks(task),
        len(task.blocked_by),
        task.batch,
        task.assigned_to,
        task.awaiting,
        join(documents.owners(task)),
        document,
    )


def of_record(value: Aggregate, document: bytes) -> Columns:
    return (
        getattr(value, "project", ""),
        getattr(value, "task_id", ""),
        documents.number(value),
        documents.asks(value),
        document,
    )


def join(owners: tuple[str, ...]) -> str | None:
    return "\n".join(owners) or None


def split(owners: str) -> list[str]:
    return owners.split("\n")
