"""What people find under `tasks/<id>/`: views of the store as files, made again at any time.

Only `task.json` is read back (it may be edited by hand), so it is never overwritten.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from codefleet.core.layout import Home
from codefleet.core.model import Activity, Fact, Instant, Result, Run, Task
from codefleet.engine import files


def write(home: Home, task: Task, runs: Sequence[Run], activity: Iterable[Activity], facts: Sequence[Fact]) -> None:
    """Make the files of a task say what the store says. Doing it again changes nothing."""
    folder = home.task(task.id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    metadata(home, task)
    files.refresh(folder / "log.jsonl", _lines(map(log_line, facts)))
    files.refresh(folder / "events.jsonl", _lines(events(facts, activity)))
    files.refresh(folder / ".failures", f"{task.attempts}\n".encode())
    for run in runs:
        if run.result is not None:
            keep(home, task.id, run.number, "result.json", _pretty(result(run.result)))
    link_stderr(home, task.id, runs)


def metadata(home: Home, task: Task) -> None:
    """`task.json`, unless a person or an import has written it."""
    path = home.task(task.id) / "task.json"
    if not os.path.lexists(path):
        files.write(path, _pretty({"cwd": task.cwd, "coder": task.agent or None, "model": task.model or None}))


def keep(home: Home, task: str, number: int, name: str, content: bytes | str) -> Path:
    """A file of a run: `prompt.md`, `result.json`, `diff.patch`."""
    path = home.run(task, number) / name
    files.refresh(path, content.encode("utf-8", "replace") if isinstance(content, str) else content)
    return path


def keep_gate(home: Home, task: str, number: int, gate: str, log: bytes) -> Path:
    """What a gate printed, under a name that can not leave the folder."""
    return keep(home, task, number, f"gates/{gate_file(gate)}", log)


def gate_file(gate: str) -> str:
    """The gate's name as the name of a file; one that had to be changed bears a digest, so that it is nobody else's."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", gate)[:80] or "gate"
    return (
        f"{plain}.log"
        if plain == gate
        else f"{plain}-{hashlib.sha256(gate.encode('utf-8', 'replace')).hexdigest()[:8]}.log"
    )


def link_stderr(home: Home, task: str, runs: Sequence[Run]) -> None:
    """`log.stderr` shows what the newest agent printed there."""
    latest = max(runs, key=lambda run: run.number, default=None)
    agents = sorted(home.spools(latest.id).glob("*-agent/err")) if latest else []
    if not agents:
        return
    link, wanted = home.task(task) / "log.stderr", os.path.relpath(agents[-1], home.task(task))
    if link.is_symlink() and link.readlink() == Path(wanted):
        return
    draft = link.with_name(".log.stderr")
    with suppress(FileNotFoundError):
        draft.unlink()
    draft.symlink_to(wanted)
    draft.replace(link)


def events(facts: Iterable[Fact], activity: Iterable[Activity]) -> list[dict[str, Any]]:
    """Facts and activity of a task as the lines of `events --json`: by time, each kind in its own order."""
    streams: tuple[Iterable[Fact | Activity], ...] = (facts, activity)
    both = heapq.merge(*streams, key=lambda one: one.at)
    return [event(one) if isinstance(one, Fact) else telemetry(one) for one in both]


def event(fact: Fact) -> dict[str, Any]:
    """A fact as one line of `events --json`."""
    return {
        "schema_version": 1,
        "position": fact.position or None,
        "kind": fact.kind,
        "task_id": fact.task_id,
        "run": fact.run,
        "ts": moment(fact.at),
        "data": {**_told(fact.data), "by": fact.data.get("by", fact.by)},
    }


def telemetry(activity: Activity) -> dict[str, Any]:
    """Activity as one line of `events --json`: its place is its run and `data.n`."""
    return {
        "schema_version": 1,
        "position": None,
        "kind": activity.kind,
        "task_id": activity.run.rpartition(".")[0],
        "run": activity.run,
        "ts": moment(activity.at),
        "data": {**activity.data, "n": activity.n},
    }


def log_line(fact: Fact) -> dict[str, Any]:
    """A fact as a line of the task's own log."""
    level = "WARNING" if fact.kind in {"task_failed", "gates_failed", "error"} else "INFO"
    about = {"ts": moment(fact.at), "level": level, "logger": "codefleet.task", "event": fact.kind}
    return {
        **about,
        "by": fact.by,
        "run": fact.run,
        **{key: value for key, value in _told(fact.data).items() if key not in about},
    }


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a fact says, with moments as people and programs read them; the store keeps numbers."""
    return {key: _moment_of(key, value) for key, value in data.items()}


def _moment_of(key: str, value: Any) -> Any:
    if key == "hold" and isinstance(value, Mapping):
        return _told(value)
    return moment(value) if key == "until" and isinstance(value, int) else value


def result(said: Result) -> dict[str, Any]:
    """A result in the form that agents write it."""
    return asdict(said)


def moment(at: Instant) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(documents: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(_json(document) + b"\n" for document in documents)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _pretty(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"
