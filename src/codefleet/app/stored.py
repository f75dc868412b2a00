"""Documents made from aggregates as they are stored. It loads nothing of ours: `status` answers at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Document = dict[str, Any]
Stored = Mapping[str, Any]

SCHEMA_VERSION = 1


def envelope(data: Any) -> Document:
    """What `--json` prints."""
    return {"schema_version": SCHEMA_VERSION, "data": data}


def moment(at: int | None) -> str | None:
    """A moment in UTC; nothing for one that has not been."""
    if not at:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


LOOKED_AT = ("assigned", "in_progress", "waiting", "verifying", "verified")
"""The states of the tasks that `status` is about, beside those that are held."""
TOLD = ("limit", "trust", "setup")
"""The kinds of holds that `status` tells of: a person can do something about them."""


def status(
    tally: Stored,
    engines: Sequence[Stored],
    agents: Sequence[Stored],
    pauses: Sequence[Stored],
    tasks: Sequence[Stored],
    *,
    now: int,
) -> Document:
    """The document of `status`: `engines` are those that live, `tasks` those that are looked at."""
    stopping = [one for one in pauses if in_force(one, now)]
    return {
        "manager": {"running": bool(engines), "engines": [engine(one, tasks, now) for one in engines]},
        "agents": [member(one, engines, tasks, stopping) for one in agents],
        "tasks": dict(tally),
        "unproven": sum(task["proven"] is False for task in tasks if task["awaiting"]),
        "questions": questions(tasks, stopping),
        "conflicts": [],
        "pauses": [pause(one) for one in stopping],
        "holds": holds(tasks),
    }


def holds(tasks: Sequence[Stored]) -> list[Document]:
    """What keeps pending tasks from starting, and how many of them."""
    found = [task["hold"] for task in tasks if task["status"] == "pending" and task["hold"]]
    told = [(hold["kind"], hold["text"]) for hold in found if hold["kind"] in TOLD]
    return [{"kind": kind, "text": text, "tasks": told.count((kind, text))} for kind, text in sorted(set(told))]


def member(value: Stored, engines: Sequence[Stored], tasks: Sequence[Stored], pauses: Sequence[Stored]) -> Document:
    """An agent as it is now: it works when a task is in its hands, and is offline when its engine does not live."""
    lives = next((one for one in engines if one["id"] == value["engine"]), None)
    if lives is None:
        return agent(value) | {"status": "offline", "current_task_id": None}
    beat = moment(max(value["last_heartbeat"], lives["beat_at"]))
    task = next((one for one in tasks if one["assigned_to"] == value["id"] and _has_run(one)), None)
    if task is None:
        stopped = {"fleet", f"agent:{value['type']}", f"account:{value['type']}"}
        word = "paused" if stopped & {one["id"] for one in pauses} else "idle"
        return agent(value) | {"status": word, "last_heartbeat": beat}
    run = task["run"]
    return agent(value) | {
        "status": "working",
        "type": run["agent"],
        "current_task_id": task["id"],
        "worktree_path": run["workspace"] or None,
        "session_id": run["session_id"] or None,
        "last_heartbeat": beat,
    }


def _has_run(task: Stored) -> bool:
    return task["run"] is not None and task["run"]["ended_at"] is None


def in_force(value: Stored, now: int) -> bool:
    """Does a pause stop anything at this moment?"""
    return bool(value["active"]) and (value["until"] is None or value["until"] > now)


def questions(tasks: Iterable[Stored], pauses: Iterable[Stored]) -> list[Document]:
    """Everything that waits for a person's words, oldest first."""
    asked = [(one["question"], one["id"], one["title"]) for one in tasks]
    asked += [(one["question"], None, one["id"]) for one in pauses if one["active"]]
    found = [each for each in asked if is_open(each[0])]
    ordered = sorted(found, key=lambda each: int(each[0]["asked_at"]))
    return [{"task_id": key, "about": about, **(question(value) or {})} for value, key, about in ordered]


def is_open(value: Stored | None) -> bool:
    return value is not None and value["answer"] is None and not value["moot"]


def question(value: Stored | None) -> Document | None:
    if value is None:
        return None
    return {
        "id": value["id"],
        "text": value["text"],
        "options": list(value["options"]),
        "live": value["live"],
        "open": is_open(value),
        "run": value["run"],
        "asked_at": moment(value["asked_at"]),
        "answer": value["answer"],
        "answered_by": value["answered_by"],
        "answered_at": moment(value["answered_at"]),
    }


def agent(value: Stored) -> Document:
    kept = (
        "type status current_task_id worktree_path session_id tasks_completed tasks_failed total_tokens_used "
        "total_cost_usd kind engine"
    )
    return {
        "agent_id": value["id"],
        "name": value["id"],
        **{name: value[name] for name in kept.split()},
        "capabilities": list(value["capabilities"]),
        "host": value["host"] or None,
        "last_heartbeat": moment(value["last_heartbeat"]),
        "created_at": moment(value["created_at"]),
        "updated_at": moment(value["updated_at"]),
    }


def engine(value: Stored, tasks: Iterable[Stored], now: int) -> Document:
    """An engine as it is now; its beat may be older than what it works on."""
    return {
        **{name: value[name] for name in ("id", "host", "pid", "version", "slots", "draining")},
        "busy": sum(one["run"]["engine"] == value["id"] for one in tasks if _has_run(one)),
        "name": value["name"] or None,
        "since": moment(value["since"]),
        "beat_age_s": round(max(0, now - value["beat_at"]) / 1000, 3),
    }


def pause(value: Stored) -> Document:
    return {
        "selector": value["id"],
        "reason": value["reason"],
        "until": moment(value["until"]),
        "question": question(value["question"]),
    }
