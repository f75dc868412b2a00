"""What surfaces show, as JSON documents: every field is there, a missing value is `None`, times are UTC with a `Z`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from codefleet.app import stored
from codefleet.core.model import (
    Agent,
    Engine,
    Evidence,
    Hold,
    Instant,
    Pause,
    Question,
    Result,
    Run,
    Status,
    Task,
    Usage,
)
from codefleet.core.settings import Settings

Document = stored.Document
envelope = stored.envelope
moment = stored.moment


def task(value: Task) -> Document:
    return {
        **_task_of_seed(value),
        "id": value.id,
        "project": value.project,
        "cwd": value.cwd or None,
        "target": value.target or None,
        "agent": value.agent or None,
        "model": value.model or None,
        "origin": value.origin,
        "expects": value.expects.value,
        "epoch": value.epoch,
        "attempts": value.attempts,
        "rounds": value.rounds,
        "bounces": value.bounces,
        "interruptions": value.interruptions,
        "hold": hold(value.hold),
        "awaiting": value.awaiting,
        "outcome": value.outcome,
        "proven": value.proven,
        "question": question(value.question),
        "evidence": evidence(value.evidence),
        "batch": value.batch,
        "revision": value.revision,
    }


def _task_of_seed(value: Task) -> Document:
    return {
        "task_id": value.id,
        "title": value.title,
        "description": value.description,
        "status": value.status.value,
        "priority": value.priority,
        "assigned_to": value.assigned_to,
        "depends_on": list(value.depends_on),
        "blocked_by": list(value.blocked_by),
        "file_scope": list(value.file_scope),
        "labels": list(value.labels),
        "branch_name": value.branch_name or None,
        "pr_url": value.pr_url or None,
        "result_summary": value.result_summary or None,
        "error_message": value.error_message or None,
        "estimated_complexity": value.complexity.value,
        "actual_tokens_used": value.usage.total or None,
        "actual_cost_usd": value.cost_usd,
        "actual_duration_ms": _between(value.started_at, value.completed_at),
        "created_at": moment(value.created_at),
        "updated_at": moment(value.updated_at),
        "assigned_at": moment(value.assigned_at),
        "started_at": moment(value.started_at),
        "completed_at": moment(value.completed_at),
    }


def _between(first: Instant | None, last: Instant | None) -> int | None:
    return last - first if first and last else None


def effective(value: Task, settings: Settings) -> Document:
    """By whom and with which model a task is done, and whether it says so itself or inherits it."""
    run = value.open_run
    agent = run.agent if run else value.agent or settings.agent.default
    model = (run.model if run else value.model) or settings.model_of(agent)
    return {
        "agent": agent,
        "agent_inherited": not value.agent,
        "model": model or None,
        "model_inherited": not value.model,
    }


def hold(value: Hold | None) -> Document | None:
    if value is None:
        return None
    return {"kind": value.kind, "text": value.text, "until": moment(value.until), "on": value.on}


def question(value: Question | None) -> Document | None:
    return stored.question(_plain(value))


def evidence(value: Evidence | None) -> Document | None:
    if value is None:
        return None
    return {
        "commit": value.commit,
        "tree": value.tree,
        "base": value.base,
        "gates": [asdict(gate) for gate in value.gates],
        "merge_commit": value.merge_commit,
        "reviewer": value.reviewer,
    }


def run(value: Run) -> Document:
    return {
        "number": value.number,
        "agent": value.agent,
        "agent_id": value.agent_id,
        "model": value.model or None,
        "status": value.status.value,
        "exit_code": value.exit_code,
        "exit_known": value.exit_known,
        "started_at": moment(value.started_at),
        "ended_at": moment(value.ended_at),
        "session_id": value.session_id or None,
        "workspace": value.workspace or None,
        "branch": value.branch or None,
        "base": value.base or None,
        "head": value.head or None,
        "usage": _usage(value.usage),
        "cost_usd": value.cost_usd,
        "files": [asdict(change) for change in value.files],
        "result": result(value.result),
        "outcome": value.outcome.value if value.outcome else None,
        "reason": value.reason or None,
        "engine": value.engine,
        "host": value.host or None,
    }


def _usage(value: Usage) -> Document:
    return {"input": value.input, "output": value.output, "cached": value.cached}


def result(value: Result | None) -> Document | None:
    if value is None:
        return None
    return {
        "status": value.status,
        "summary": value.summary,
        "files_changed": list(value.files_changed),
        "commits": list(value.commits),
        "tests": [asdict(test) for test in value.tests],
        "next_steps": list(value.next_steps),
        "question": value.question or None,
        "salvaged": value.salvaged,
    }


def member(value: Agent, engines: Sequence[Engine], tasks: Sequence[Task], pauses: Sequence[Pause]) -> Document:
    """An agent as it is now."""
    plain = [[_plain(one) for one in values] for values in (engines, tasks, pauses)]
    return stored.member(_plain(value), *plain)


def pause(value: Pause) -> Document:
    return stored.pause(_plain(value))


def _plain(value: Any) -> Any:
    """A value as a store has it."""
    return msgspec.to_builtins(value)


def counts(tally: Mapping[Status, int]) -> Document:
    return {status.value: tally.get(status, 0) for status in Status}


def status(
    tally: Mapping[Status, int],
    engines: Sequence[Engine],
    agents: Sequence[Agent],
    pauses: Sequence[Pause],
    tasks: Sequence[Task],
    now: Instant,
) -> Document:
    """What the whole fleet is doing; `tasks` are those in a state that is looked at."""
    plain = [[_plain(one) for one in values] for values in (engines, agents, pauses, tasks)]
    return stored.status(counts(tally), *plain, now=now)


def questions(tasks: Sequence[Task], pauses: Sequence[Pause]) -> list[Document]:
    """Everything that waits for a person's words, oldest first."""
    return stored.questions([_plain(one) for one in tasks], [_plain(one) for one in pauses])
