"""Aggregates as documents: the JSON that is stored, and what stores read out of an aggregate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from codefleet.core.errors import Corrupt, Exists, InvalidInput, Missing, PositionGone, Stale
from codefleet.core.model import TERMINAL, Aggregate, Run, Status, Task
from codefleet.ports import Filter

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="deterministic")
_any = msgspec.json.Decoder()
_WORD = re.compile(r"\w{2,}")


def encode(value: Any) -> bytes:
    """The document of an aggregate, or the JSON of a fact's data; equal values give equal bytes."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"this can not be stored: {error}") from error


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(kind: type[T], document: bytes | memoryview) -> T:
    """An aggregate, a fact or an activity from its document. Unknown fields are ignored, missing ones take their defaults."""
    try:
        return cast("T", _decoder(cast("Any", kind)).decode(document))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"a stored {name(kind)} can not be read: {error}") from error


def data(document: bytes) -> dict[str, Any]:
    """The data of a fact or of an activity."""
    return cast("dict[str, Any]", _any.decode(document)) if document != b"{}" else {}


def digest(document: bytes) -> bytes:
    """What tells one content from another."""
    return hashlib.blake2b(document, digest_size=16).digest()


def name(kind: type[Any]) -> str:
    return kind.__name__.lower()


# ------------------------------------------------------------------------------------- what can be refused


def same_id(held: Aggregate, new: Aggregate) -> None:
    if type(held) is not type(new) or held.id != new.id:
        raise InvalidInput(f"a commit keeps kind and id: {held.id} is not {new.id}")


def stale(kind: type[Any], key: str) -> Stale:
    return Stale(f"{name(kind)} {key} was changed by somebody else", hint="read it again and decide again")


def missing(kind: type[Any], key: str) -> Missing:
    return Missing(f"there is no {name(kind)} {key}")


def exists(kind: type[Any], key: str) -> Exists:
    return Exists(f"there is a {name(kind)} {key} already, with other content")


# ------------------------------------------------------------------------------------- what lists look at


def owners(task: Task) -> tuple[str, ...]:
    """The engines that must look after a run of this task."""
    runs = [run for run in (task.run, *task.lingering) if run is not None and not run.ended]
    return tuple(sorted({run.engine for run in runs}))


def is_ready(task: Task) -> bool:
    return task.status is Status.PENDING and task.hold is None


def lift_at(task: Task) -> int | None:
    """When a held task is due."""
    return task.hold.until if task.hold is not None and task.status not in TERMINAL else None


def asks(value: Aggregate) -> int:
    """0: no open question, 1: one is open, 2: and its asker lives."""
    question = getattr(value, "question", None)
    if question is None or not question.open:
        return 0
    return 2 if question.live else 1


def number(value: Aggregate) -> int:
    return value.number if isinstance(value, Run) else 0


def text(task: Task) -> tuple[str, str, str]:
    """What a task is found by: title, description, labels."""
    return task.title, task.description[:20_000], " ".join(task.labels)


def words(text: str) -> list[str]:
    """The distinct words of a text, in order."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))


def matches(value: Aggregate, where: Filter) -> bool:
    """Does an aggregate meet all conditions of a filter that its kind knows?"""
    if not value.id.startswith(where.prefix):
        return False
    if where.project and getattr(value, "project", where.project) != where.project:
        return False
    if where.task and getattr(value, "task_id", where.task) != where.task:
        return False
    if where.open_question and hasattr(value, "question") and not asks(value):
        return False
    return not isinstance(value, Task) or _task_matches(value, where)


def _task_matches(task: Task, where: Filter) -> bool:
    return all(
        (
            not where.status or task.status in where.status,
            not where.ready or is_ready(task),
            not where.awaiting or (task.status is Status.VERIFIED and task.awaiting is not None),
            not where.batch or task.batch == where.batch,
            not where.assigned_to or task.assigned_to == where.assigned_to,
        )
    )


def counts(tally: Mapping[Status, int]) -> Mapping[Status, int]:
    """Every state with its number, the empty ones too."""
    return {status: tally.get(status, 0) for status in Status}


def gone(position: str) -> PositionGone:
    return PositionGone(
        f"the facts behind position {position} are not kept here", hint="begin again without a position"
    )
