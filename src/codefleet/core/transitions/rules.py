"""What follows from other tasks: dependencies, rework of an upstream, competition, landing. Safe to run twice."""

from __future__ import annotations

from dataclasses import replace

from codefleet.core.model import Evidence, Hold, Instant, Outcome, Status, Task
from codefleet.core.transitions.change import At, Change, fact, held, marked, move, requeue, stay
from codefleet.core.transitions.table import Event, admit, refusal


def meet(task: Task, dependency: str, at: At) -> Change:
    """A dependency is completed; the last one makes the task pending."""
    admit(task, Event.DEPENDENCY_MET)
    if dependency not in task.blocked_by:
        return Change(task)
    rest = tuple(one for one in task.blocked_by if one != dependency)
    if task.status is not Status.BLOCKED or rest:
        return Change(stay(task, Event.DEPENDENCY_MET, at, blocked_by=rest))
    hold = None if task.hold and task.hold.kind == "upstream" else task.hold
    after = move(task, Event.DEPENDENCY_MET, Status.PENDING, at, blocked_by=(), hold=hold)
    return Change(after, (fact(after, "task_unblocked", at),))


def lose(task: Task, dependency: str, how: str, at: At) -> Change:
    """A dependency failed or was cancelled: stay held, run all the same, or be skipped, as the task says."""
    cell = admit(task, Event.DEPENDENCY_FAILED)
    if cell.impossible or dependency not in task.blocked_by:
        return Change(task)
    if task.if_failed == "run":
        return meet(task, dependency, at)
    if task.if_failed == "skip":
        return _skipped(task, dependency, how, at)
    hold = Hold(kind="upstream", text=f"{dependency}, which it depends on, {how}", on=dependency)
    if task.hold == hold or (task.hold and _outlives(task.hold, task, dependency)):
        return Change(task)
    after = stay(task, Event.DEPENDENCY_FAILED, at, hold=hold)
    return Change(after, (held(after, hold, at),))


def _outlives(hold: Hold, task: Task, dependency: str) -> bool:
    """A person's hold stays; and of several dependencies that are lost the first is named, not one after the other."""
    other = hold.kind == "upstream" and hold.on != dependency and hold.on in task.blocked_by
    return other or hold.kind == "person"


def _skipped(task: Task, dependency: str, how: str, at: At) -> Change:
    after = move(
        task,
        Event.DEPENDENCY_FAILED,
        Status.CANCELLED,
        at,
        hold=None,
        completed_at=at.now,
        error_message=f"skipped: {dependency} {how}",
    )
    return Change(after, (fact(after, "task_cancelled", at, by=at.by, superseded=None),))


def rearm(task: Task, at: At) -> Change:
    """What it depends on is on its way again: the hold that its failure caused is lifted."""
    if task.hold is None or task.hold.kind != "upstream":
        return Change(task)
    after = replace(task, hold=None, updated_at=at.now)
    return Change(after, (fact(after, "task_released", at, kind="upstream"),))


def due(task: Task, now: Instant, at: At) -> Change:
    """Lift a hold whose time has come."""
    if task.hold is None or task.hold.until is None or task.hold.until > now:
        return Change(task)
    after = replace(task, hold=None, updated_at=at.now)
    return Change(after, (fact(after, "task_released", at, kind=task.hold.kind),))


def put_hold(task: Task, hold: Hold, at: At) -> Change:
    """Whoever finds a pending task unclaimable stores why."""
    if task.status is not Status.PENDING or task.hold:
        return Change(task)
    after = replace(task, hold=hold, updated_at=at.now)
    return Change(after, (held(after, hold, at),))


def rework(task: Task, upstream: str, at: At) -> Change:
    """An upstream that it was built on goes back to work: wait for it again."""
    cell = admit(task, Event.UPSTREAM_REWORK)
    if task.landing_intent:
        raise refusal(task, Event.UPSTREAM_REWORK, because="it is landing now")
    if task.status is not Status.BLOCKED and Status.BLOCKED not in cell.targets:
        return Change(_flagged(task, at))
    blocked_by = (*(one for one in task.blocked_by if one != upstream), upstream)
    run = marked(task.run, Outcome.FENCED, f"its upstream {upstream} is reworked")
    if task.status is Status.BLOCKED:
        return Change(stay(task, Event.UPSTREAM_REWORK, at, blocked_by=blocked_by))
    after = move(
        task,
        Event.UPSTREAM_REWORK,
        Status.BLOCKED,
        at,
        blocked_by=blocked_by,
        run=run,
        assigned_to=None,
        awaiting=None,
        evidence=None,
        proven=None,
        outcome=None,
    )
    return Change(after, (fact(after, "task_blocked", at, by=list(blocked_by)),))


def _flagged(task: Task, at: At) -> Task:
    """A run under way is verified against the new upstream before it is believed."""
    if task.run is None or task.status not in {Status.IN_PROGRESS, Status.WAITING}:
        return task
    return replace(task, run=replace(task.run, stale=True), updated_at=at.now)


def not_chosen(task: Task, winner: str, at: At) -> Change:
    """Another member of its batch was chosen."""
    admit(task, Event.NOT_CHOSEN)
    after = move(task, Event.NOT_CHOSEN, Status.CANCELLED, at, outcome="superseded", awaiting=None, completed_at=at.now)
    return Change(after, (fact(after, "task_cancelled", at, by=at.by, superseded=winner),))


def enqueue(task: Task, at: At) -> Change:
    """Into the landing queue."""
    admit(task, Event.ENQUEUE)
    if task.status is Status.LANDING:
        return Change(task)
    after = move(task, Event.ENQUEUE, Status.LANDING, at, awaiting=None)
    return Change(after, (fact(after, "landing_queued", at),))


def landed(task: Task, commit: str, at: At) -> Change:
    """The target is seen to contain it."""
    admit(task, Event.LANDED)
    if task.status is Status.COMPLETED:
        return Change(task)
    evidence = replace(task.evidence or Evidence(), merge_commit=commit)
    after = move(
        task,
        Event.LANDED,
        Status.COMPLETED,
        at,
        outcome="landed",
        awaiting=None,
        completed_at=at.now,
        evidence=evidence,
        landing_intent=None,
        assigned_to=None,
        hold=None,
    )
    return Change(after, (fact(after, "task_completed", at, outcome="landed", proven=after.proven),))


def bounce(task: Task, why: str, at: At, *, most: int) -> Change:
    """Refused as merged while the target is green: back to work, or to a person when that has been tried enough."""
    admit(task, Event.BOUNCE)
    if task.bounces < most:
        return requeue(
            task,
            Event.BOUNCE,
            at,
            why=why,
            bounces=task.bounces + 1,
            notes=(*task.notes, why),
            rounds=0,
            evidence=None,
            proven=None,
            outcome=None,
            landing_intent=None,
        )
    after = move(task, Event.BOUNCE, Status.VERIFIED, at, awaiting="human", error_message=why, landing_intent=None)
    return Change(after, (fact(after, "task_verified", at, tree=None, proven=after.proven, awaiting="human"),))


def hold_queue(task: Task, text: str, at: At) -> Change:
    """Its landing waits: the target is red, or gates can not run."""
    admit(task, Event.GATES_STUCK)
    hold = Hold(kind="gates", text=text)
    after = stay(task, Event.GATES_STUCK, at, hold=hold)
    return Change(after, (held(after, hold, at),))
