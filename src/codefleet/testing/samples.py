"""Tasks to try things on: one in each state, made by the same transitions that make real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from codefleet.core.model import Evidence, Run, Status, Task
from codefleet.core.transitions import At, Event, people, rules, runs

THEN = 1_000_000
BY = At(THEN, "engine")
EVIDENCE = Evidence(commit="c0ffee", tree="7ee", base="ba5e")


def pending(**fields: Any) -> Task:
    """A task that waits for nothing."""
    fields = {"id": "aaaaaaaa", "title": "Fix it", "created_at": THEN, "updated_at": THEN, **fields}
    return Task(project="p1", status=Status.PENDING, **fields)


def attempt(task: Task, **fields: Any) -> Run:
    """The next run of a task, as an engine would make it."""
    number = task.runs + 1
    fields = {"engine": "e_1", "agent_id": "runner-1", "agent": "scripted", **fields}
    return Run(
        id=f"{task.id}.{number}", task_id=task.id, project=task.project, number=number, epoch=task.epoch + 1, **fields
    )


def assigned(task: Task | None = None) -> Task:
    task = task or pending()
    return runs.assign(task, attempt(task), BY).task


def started(task: Task | None = None) -> Task:
    task = assigned(task)
    return runs.start(task, task.epoch, BY, pid=7, workspace="/w", branch="scripted/fix-it/aaaaaaaa").task


def waiting(*, live: bool) -> Task:
    task = started()
    return runs.ask(task, task.epoch, "Left or right?", BY, live=live).task


def reported() -> Task:
    task = started()
    return runs.report(task, task.epoch, Event.REPORT_CHANGE, BY, head="c0ffee").task


def verified(awaiting: str | None = "review") -> Task:
    task = reported()
    return runs.pass_gates(task, task.epoch, EVIDENCE, BY, proven=True, awaiting=awaiting).task


def landing(*, intent: bool) -> Task:
    task = rules.enqueue(verified(), BY).task
    return replace(task, landing_intent="c0ffee" if intent else None)


def every() -> dict[Status, tuple[Task, ...]]:
    """A task in each state, and in each variant of a state that the table tells apart."""
    task = started()
    return {
        Status.BLOCKED: (people.depend(pending(), ("bbbbbbbb",), frozenset({"bbbbbbbb"}), BY).task,),
        Status.PENDING: (pending(),),
        Status.ASSIGNED: (assigned(),),
        Status.IN_PROGRESS: (task,),
        Status.WAITING: (waiting(live=True), waiting(live=False)),
        Status.VERIFYING: (reported(),),
        Status.VERIFIED: (verified(),),
        Status.LANDING: (landing(intent=False), landing(intent=True)),
        Status.COMPLETED: (people.accept(verified(), BY).task,),
        Status.FAILED: (runs.report_nothing(task, task.epoch, "it did nothing", BY, most=1).task,),
        Status.CANCELLED: (people.cancel(task, BY).task,),
    }
