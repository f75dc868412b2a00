"""What a person does to a task, at any moment of its life."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from codefleet.core.model import PRIORITY_STEP, Complexity, Hold, Instant, Outcome, Status, Task
from codefleet.core.transitions.change import (
    At,
    Change,
    fact,
    held,
    marked,
    moot,
    move,
    requeue,
    stay,
    wait_for_dependencies,
)
from codefleet.core.transitions.table import Event, admit, refusal

FIRST_OF_ALL = -(1 << 60)
"""The rank of `add --next`: before everything that waits its turn."""


def rank_of(created_at: Instant, priority: int, *, first: bool = False) -> int:
    """The place in the queue: priority and age in one static number, lowest first; nothing starves."""
    return created_at + FIRST_OF_ALL if first else created_at - PRIORITY_STEP * priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The fields that a person wants changed; None: as it was."""

    title: str | None = None
    description: str | None = None
    labels: tuple[str, ...] | None = None
    agent: str | None = None
    model: str | None = None
    complexity: Complexity | None = None
    priority: int | None = None
    file_scope: tuple[str, ...] | None = None

    def given(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


TEXT = ("title", "description", "labels", "agent", "model", "complexity")


def edit(task: Task, change: Edit, at: At) -> Change:
    """New text, priority or scope. Runs learn of new text by its revision."""
    text = {name: value for name, value in change.given(*TEXT).items() if value != getattr(task, name)}
    after = task
    if text:
        admit(task, Event.EDIT_TEXT)
        after = _revised(stay(after, Event.EDIT_TEXT, at, **text), text)
    fields = [*text]
    if change.priority is not None and change.priority != task.priority:
        admit(task, Event.EDIT_PRIORITY)
        rank = rank_of(task.created_at, change.priority, first=task.next)
        after = stay(after, Event.EDIT_PRIORITY, at, priority=change.priority, rank=rank)
        fields.append("priority")
    if change.file_scope is not None and change.file_scope != task.file_scope:
        after = _rescope(after, change.file_scope, at)
        fields.append("file_scope")
    return Change(after, (fact(after, "task_edited", at, fields=fields),) if fields else ())


def _revised(task: Task, fields: Container[str]) -> Task:
    """The next run is told of it. A run that works on other words is not believed before a person has looked."""
    other_words = "title" in fields or "description" in fields
    if other_words and task.run and task.status in {Status.IN_PROGRESS, Status.WAITING}:
        task = replace(task, run=replace(task.run, stale=True))
    return replace(task, revision=task.revision + 1) if task.runs else task


def _rescope(task: Task, globs: tuple[str, ...], at: At) -> Task:
    unlimited = not task.file_scope
    wider = not globs or (not unlimited and set(task.file_scope) <= set(globs))
    event = Event.WIDEN_SCOPE if wider else Event.NARROW_SCOPE
    admit(task, event, hint="it can be widened while it runs, not narrowed; cancel it first")
    return stay(task, event, at, file_scope=globs)


def depend(task: Task, depends_on: tuple[str, ...], unmet: frozenset[str], at: At) -> Change:
    """Other dependencies; `unmet` are those of them that are not completed. A run under way is not disturbed."""
    admit(task, Event.DEPEND)
    fields = fact(task, "task_edited", at, fields=["depends_on"])
    blocked_by = tuple(one for one in depends_on if one in unmet)
    if task.status not in {Status.BLOCKED, Status.PENDING, Status.ASSIGNED}:
        return Change(stay(task, Event.DEPEND, at, depends_on=depends_on, blocked_by=blocked_by), (fields,))
    if blocked_by:
        run = marked(task.run, Outcome.FENCED, "it was given another dependency") if task.run else None
        after = move(
            task,
            Event.DEPEND,
            Status.BLOCKED,
            at,
            depends_on=depends_on,
            blocked_by=blocked_by,
            run=run,
            assigned_to=None,
        )
        return Change(after, (fields, fact(after, "task_blocked", at, by=list(blocked_by))))
    if task.status is Status.ASSIGNED:  # all of them are met: nothing changes for the run
        return Change(stay(task, Event.DEPEND, at, depends_on=depends_on), (fields,))
    after = move(task, Event.DEPEND, Status.PENDING, at, depends_on=depends_on, blocked_by=(), hold=_no_upstream(task))
    unblocked = (fact(after, "task_unblocked", at),) if task.status is Status.BLOCKED else ()
    return Change(after, (fields, *unblocked))


def _no_upstream(task: Task) -> Hold | None:
    return None if task.hold and task.hold.kind == "upstream" else task.hold


def answer(task: Task, text: str, at: At) -> Change:
    """The first answer wins. Live, the same run goes on; parked, the next run is told."""
    admit(task, Event.ANSWER, hint="`codefleet answer` without a target lists the open questions")
    question = task.question
    if question is None or not question.open:
        raise refusal(task, Event.ANSWER, because="its question is answered already")
    answered = replace(question, answer=text, answered_by=at.by, answered_at=at.now)
    said = fact(task, "task_answered", at, run=task.run, question=question.id, by=at.by)
    if question.live:
        after = move(task, Event.ANSWER, Status.IN_PROGRESS, at, question=answered)
        return Change(after, (said,))
    note = f"You asked: {question.text}\nThe answer: {text}"
    change = requeue(
        task, Event.ANSWER, at, why="its question was answered", question=answered, notes=(*task.notes, note)
    )
    return Change(change.task, (said, *change.facts))


def hold(task: Task, text: str, at: At) -> Change:
    """A person wants it not to start (or not again)."""
    admit(task, Event.HOLD)
    reason = Hold(kind="person", text=text)
    if task.status is Status.ASSIGNED:
        run = marked(task.run, Outcome.FENCED, "a person held it")
        after = move(task, Event.HOLD, Status.PENDING, at, hold=reason, run=run, assigned_to=None)
    else:
        after = stay(task, Event.HOLD, at, hold=reason)
    return Change(after, (held(after, reason, at),))


def unhold(task: Task, at: At) -> Change:
    """A person lifts the hold, whatever it was for: a time, a limit, another person."""
    if task.hold is None:
        return Change(task)
    after = replace(task, hold=None, updated_at=at.now)
    return Change(after, (fact(after, "task_released", at, kind=task.hold.kind),))


def release(task: Task, why: str, at: At) -> Change:
    """Take it away from its agent, back to the queue."""
    admit(task, Event.RELEASE)
    if task.status is Status.PENDING:
        return Change(task)
    return requeue(task, Event.RELEASE, at, why=why, run=marked(task.run, Outcome.FENCED, why), question=moot(task))


def cancel(task: Task, at: At, *, superseded: str | None = None) -> Change:
    """Stop it for good. What its agent did stays in its workspace and refs."""
    if task.landing_intent:
        raise refusal(task, Event.CANCEL, because="it is landing now", hint="undo it with `codefleet revert`")
    admit(task, Event.CANCEL, hint="completed is final: add a follow-up task instead")
    if task.status is Status.CANCELLED:
        return Change(task)
    after = move(
        task,
        Event.CANCEL,
        Status.CANCELLED,
        at,
        hold=None,
        awaiting=None,
        assigned_to=None,
        question=moot(task),
        completed_at=at.now,
        run=marked(task.run, Outcome.CANCELLED, f"cancelled by {at.by}"),
    )
    return Change(after, (fact(after, "task_cancelled", at, run=task.open_run, by=at.by, superseded=superseded),))


def retry(task: Task, unmet: frozenset[str], at: At) -> Change:
    """Try again with fresh counters. `unmet`: the dependencies that are not completed."""
    admit(task, Event.RETRY, hint=_RETRY_HINTS.get(task.status, ""))
    if task.status is Status.VERIFYING or task.status is Status.ASSIGNED:
        return unhold(task, at) if task.hold and task.hold.kind == "gates" else Change(task)
    if task.status is Status.PENDING:
        return unhold(task, at)
    if task.status is Status.WAITING and task.question and task.question.open and task.question.live:
        raise refusal(task, Event.RETRY, because="its agent waits for an answer", hint=_RETRY_HINTS[Status.WAITING])
    return _reopened(task, unmet, at)


_RETRY_HINTS = {
    Status.BLOCKED: "it starts when its dependencies are completed; `codefleet why` names them",
    Status.IN_PROGRESS: "it is being worked on; `codefleet cancel` stops it",
    Status.WAITING: "answer it with `codefleet answer`",
    Status.VERIFIED: "send it back with `codefleet review ID --reject TEXT`",
    Status.COMPLETED: "completed is final: add a follow-up task instead",
}


def _reopened(task: Task, unmet: frozenset[str], at: At) -> Change:
    blocked_by = tuple(one for one in task.depends_on if one in unmet)
    blocked = bool(blocked_by) and task.status is not Status.WAITING
    after = move(
        task,
        Event.RETRY,
        Status.BLOCKED if blocked else Status.PENDING,
        at,
        blocked_by=blocked_by,
        hold=None,
        question=moot(task),
        awaiting=None,
        outcome=None,
        proven=None,
        evidence=None,
        error_message="",
        completed_at=None,
        assigned_to=None,
        attempts=0,
        rounds=0,
        bounces=0,
        interruptions=0,
        run=marked(task.run, Outcome.FENCED, "it is tried again"),
    )
    return Change(after, (fact(after, "task_reopened", at),)).then(lambda again: wait_for_dependencies(again, at))


def accept(task: Task, at: At, *, outcome: str = "accepted") -> Change:
    """Done: proven work under policy `none`, or a person's approval while no landing exists."""
    admit(task, Event.ACCEPT, hint="only work that is verified can be accepted")
    if task.status is Status.COMPLETED:
        return Change(task)
    evidence = replace(task.evidence, reviewer=at.by) if task.evidence and task.awaiting == "review" else task.evidence
    after = move(
        task,
        Event.ACCEPT,
        Status.COMPLETED,
        at,
        outcome=task.outcome or outcome,
        awaiting=None,
        completed_at=at.now,
        assigned_to=None,
        evidence=evidence,
        hold=None,
        error_message="",
    )
    data = {"outcome": after.outcome, "proven": after.proven}
    return Change(after, (fact(after, "task_completed", at, run=task.run, **data),))


def request_changes(task: Task, comments: str, at: At) -> Change:
    """A reviewer wants more: the next run goes on from here with the comments. Counters begin anew."""
    admit(task, Event.REQUEST_CHANGES, hint="only work that is verified can be sent back")
    if task.landing_intent:
        raise refusal(task, Event.REQUEST_CHANGES, because="it is landing now")
    note = f"A reviewer sent this back: {comments}"
    return requeue(
        task,
        Event.REQUEST_CHANGES,
        at,
        why="changes requested",
        notes=(*task.notes, note),
        rounds=0,
        evidence=None,
        outcome=None,
        proven=None,
    )


def take_over(task: Task, at: At) -> Change:
    """A person works in the agent's session, or hands it back."""
    admit(task, Event.TAKE_OVER)
    if task.status is Status.IN_PROGRESS:
        return Change(stay(task, Event.TAKE_OVER, at))
    after = move(
        task,
        Event.TAKE_OVER,
        Status.IN_PROGRESS,
        at,
        awaiting=None,
        hold=None,
        question=moot(task),
        outcome=None,
        proven=None,
        evidence=None,
        error_message="",
        completed_at=None,
    )
    return Change(after, (fact(after, "task_reopened", at),))
