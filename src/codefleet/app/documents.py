"""What surfaces show, as JSON documents: every field is there, a missing value is `None`, times are UTC with a `Z`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

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
from codefleet.engine import views

Document = dict[str, Any]

SCHEMA_VERSION = 1


def envelope(data: Any) -> Document:
    """What `--json` prints."""
    return {"schema_version": SCHEMA_VERSION, "data": data}


def moment(at: Instant | None) -> str | None:
    """A moment in UTC; nothing for one that has not been."""
    return views.moment(at) if at else None


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
    if value is None:
        return None
    return {
        "id": value.id,
        "text": value.text,
        "options": list(value.options),
        "live": value.live,
        "open": value.open,
        "run": value.run,
        "asked_at": moment(value.asked_at),
        "answer": value.answer,
        "answered_by": value.answered_by,
        "answered_at": moment(value.answered_at),
    }


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


def agent(value: Agent) -> Document:
    return {
        "agent_id": value.id,
        "name": value.id,
        "type": value.type,
        "status": value.status.value,
        "current_task_id": value.current_task_id,
        "capabilities": list(value.capabilities),
        "worktree_path": value.worktree_path,
        "session_id": value.session_id,
        "last_heartbeat": moment(value.last_heartbeat),
        "tasks_completed": value.tasks_completed,
        "tasks_failed": value.tasks_failed,
        "total_tokens_used": value.total_tokens_used,
        "total_cost_usd": value.total_cost_usd,
        "created_at": moment(value.created_at),
        "updated_at": moment(value.updated_at),
        "kind": value.kind,
        "engine": value.engine,
        "host": value.host or None,
    }


def engine(value: Engine, now: Instant) -> Document:
    return {
        "id": value.id,
        "name": value.name or None,
        "host": value.host,
        "pid": value.pid,
        "version": value.version,
        "slots": value.slots,
        "busy": value.busy,
        "since": moment(value.since),
        "beat_age_s": round(max(0, now - value.beat_at) / 1000, 3),
        "draining": value.draining,
    }


def pause(value: Pause) -> Document:
    return {
        "selector": value.id,
        "reason": value.reason,
        "until": moment(value.until),
        "question": question(value.question),
    }


def counts(tally: Mapping[Status, int]) -> Document:
    return {status.value: tally.get(status, 0) for status in Status}


def open_questions(tasks: Sequence[Task], pauses: Sequence[Pause]) -> list[Document]:
    """Everything that waits for a person's words, oldest first."""
    found = [(one.question, one.id, one.title) for one in tasks if one.question and one.question.open]
    found += [(one.question, "", one.id) for one in pauses if one.question and one.question.open]
    ordered = sorted(found, key=lambda each: each[0].asked_at)
    return [{"task_id": key or None, "about": about, **(question(asked) or {})} for asked, key, about in ordered]
