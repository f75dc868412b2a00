"""The outcome of a transition, and the few pieces that all transitions are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from codefleet.core.model import Fact, Hold, Instant, Outcome, Question, Run, Status, Task
from codefleet.core.transitions.table import TABLE, Event

BACKOFF_FIRST = 2_000
BACKOFF_MOST = 60_000
MOST_INTERRUPTIONS = 5
"""So many unexplained deaths of its engine, and a task is taken to be their cause."""


@dataclass(frozen=True, slots=True)
class Change:
    """A task as it is after an event, and the facts to be committed with it."""

    task: Task
    facts: tuple[Fact, ...] = ()
    kept: bool = False
    """The report had no effect: the caller keeps the work as salvage."""

    def then(self, step: Callable[[Task], Change]) -> Change:
        """A further event at once, for one commit of both."""
        after = step(self.task)
        return Change(after.task, self.facts + after.facts, self.kept or after.kept)


@dataclass(frozen=True, slots=True)
class At:
    """When and by whom: an engine, an agent, a rule or `person`."""

    now: Instant
    by: str


def fact(task: Task, name: str, at: At, /, *, run: Run | None = None, **data: Any) -> Fact:
    return Fact(
        kind=name,
        at=at.now,
        by=at.by,
        project=task.project,
        task_id=task.id,
        run=run.id if run else None,
        epoch=task.epoch or None,
        data=data,
    )


def move(task: Task, event: Event, to: Status, at: At, **changes: Any) -> Task:
    """The task in its new state, held to the table."""
    if to not in TABLE[event][task.status].targets:  # a defect of ours, never of an input
        raise AssertionError(f"{event.name} may not lead from {task.status} to {to}")
    return replace(task, status=to, updated_at=at.now, **changes)


def stay(task: Task, event: Event, at: At, **changes: Any) -> Task:
    return move(task, event, task.status, at, **changes)


def marked(run: Run | None, outcome: Outcome, reason: str) -> Run | None:
    """The run with its outcome, unless it has one already: the first word stands."""
    return replace(run, outcome=outcome, reason=reason) if run and run.outcome is None else run


def backoff(attempts: int) -> int:
    """Milliseconds to wait before the next attempt."""
    return min(BACKOFF_MOST, BACKOFF_FIRST << max(0, min(attempts, 16) - 1))


def moot(task: Task) -> Question | None:
    """Its question, closed without an answer if it was open: nobody waits for it any more."""
    return replace(task.question, moot=True) if task.question and task.question.open else task.question


def parked(task: Task) -> Question | None:
    """Its question, when the process that waited for the answer is gone."""
    return replace(task.question, live=False) if task.question else None


def persons_hold(task: Task) -> Hold | None:
    """A hold that a person set survives every requeue; all others are decided anew."""
    return task.hold if task.hold and task.hold.kind == "person" else None


def requeue(task: Task, event: Event, at: At, *, why: str, hold: Hold | None = None, **changes: Any) -> Change:
    """Back to the queue: what it was doing is over, what it learned stays."""
    kept = persons_hold(task) or hold
    after = move(task, event, Status.PENDING, at, hold=kept, assigned_to=None, awaiting=None, **changes)
    said = [fact(after, "task_requeued", at, why=why, attempts=after.attempts, interruptions=after.interruptions)]
    if kept and kept != task.hold:
        said.append(held(after, kept, at))
    return Change(after, tuple(said)).then(lambda queued: wait_for_dependencies(queued, at))


def wait_for_dependencies(task: Task, at: At) -> Change:
    """A dependency that a person added while it was being worked on holds from the next run on."""
    if not task.blocked_by or task.status is not Status.PENDING:
        return Change(task)
    after = move(task, Event.DEPEND, Status.BLOCKED, at)
    return Change(after, (fact(after, "task_blocked", at, by=list(after.blocked_by)),))


def held(task: Task, hold: Hold, at: At) -> Fact:
    return fact(task, "task_held", at, kind=hold.kind, text=hold.text, until=hold.until, on=hold.on)


def failed(task: Task, event: Event, at: At, reason: str, **changes: Any) -> Change:
    after = move(
        task,
        event,
        Status.FAILED,
        at,
        error_message=reason,
        hold=None,
        assigned_to=None,
        completed_at=at.now,
        **changes,
    )
    return Change(after, (fact(after, "task_failed", at, reason=reason),))


def own_failure(task: Task, event: Event, at: At, reason: str, most: int, **changes: Any) -> Change:
    """One attempt is used up: again after a pause, or failed when it was the last."""
    attempts = task.attempts + 1
    if attempts >= most:
        return failed(task, event, at, reason, attempts=attempts, **changes)
    hold = Hold(kind="time", text=f"attempt {attempts} of {most} failed: {reason}", until=at.now + backoff(attempts))
    return requeue(task, event, at, why=reason, hold=hold, attempts=attempts, **changes)
