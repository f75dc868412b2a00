"""How new starts are stopped and allowed again: by a person, or by two equal failures to start."""

from __future__ import annotations

from dataclasses import replace

from codefleet.core.model import Fact, Instant, Pause, Question
from codefleet.core.transitions.change import At

STRIKES = 2
"""So many equal failures to start, and nothing of that kind is started until a person has looked."""


MOST_FAILURES = 5
"""So many failures in a row, however different their words, are as good as two equal ones."""


def selector(kind: str, name: str = "") -> str:
    """The id of a pause: `fleet`, `agent:TYPE`, `account:NAME`, `project:ID`, `task:ID`."""
    return f"{kind}:{name}" if name else kind


def strike(pause: Pause, failure: str, at: At) -> tuple[Pause, tuple[Fact, ...]]:
    """One more failure to start; the second equal one pauses, with one question, and so do many in a row."""
    if pause.active:
        return pause, ()
    strikes = pause.strikes + 1 if failure == pause.last_failure else 1
    failures = pause.failures + 1
    counted = replace(pause, strikes=strikes, failures=failures, last_failure=failure, updated_at=at.now)
    if strikes < STRIKES and failures < MOST_FAILURES:
        return counted, ()
    text = f"{pause.id} failed to start {failures} times: {failure}\nAnswer when it is repaired; any answer goes on."
    question = Question(id=f"q_{pause.id}", text=text, asked_at=at.now)
    return put(replace(counted, question=question, questions=pause.questions + 1), failure, at)


def clear(pause: Pause, at: At) -> Pause:
    """It started well: earlier failures do not count."""
    if pause.active or not pause.strikes:
        return pause
    return replace(pause, strikes=0, failures=0, last_failure="", updated_at=at.now)


def put(pause: Pause, reason: str, at: At, *, until: Instant | None = None) -> tuple[Pause, tuple[Fact, ...]]:
    """No new starts from now on, until a moment or until it is lifted."""
    if pause.active and pause.reason == reason and pause.until == until:
        return pause, ()
    made = pause.created_at or at.now
    after = replace(pause, active=True, reason=reason, until=until, created_at=made, updated_at=at.now)
    return after, (Fact(kind="paused", at=at.now, by=at.by, data=_about(after, reason=reason, until=until)),)


def lift(pause: Pause, at: At, *, answer: str = "") -> tuple[Pause, tuple[Fact, ...]]:
    """New starts again; its question is answered by that, or moot."""
    if not pause.active:
        return pause, ()
    question = pause.question
    if question is not None and question.open:
        question = (
            replace(question, answer=answer, answered_by=at.by, answered_at=at.now)
            if answer
            else replace(question, moot=True)
        )
    after = replace(
        pause, active=False, until=None, strikes=0, failures=0, last_failure="", question=question, updated_at=at.now
    )
    return after, (Fact(kind="resumed", at=at.now, by=at.by, data=_about(after, by=at.by)),)


def over(pause: Pause, now: Instant) -> bool:
    """Has its time come?"""
    return pause.active and pause.until is not None and pause.until <= now


def _about(pause: Pause, **more: object) -> dict[str, object]:
    return {"selector": pause.id, **more}
