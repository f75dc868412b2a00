"""`show` and `why`: all about one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from codefleet.cli import words
from codefleet.cli.frame import Frame, command, offered


@command("show")
@click.argument("target", shell_complete=offered)
def show(frame: Frame, target: str) -> None:
    """Everything about a task, run, agent or question."""
    found = frame.run(lambda fleet: fleet.show(target))
    frame.data(found, lambda: _shown(found))


def _shown(found: Mapping[str, Any]) -> str:
    return task(found) if found["what"] == "task" else plain(found)


def plain(found: Mapping[str, Any]) -> str:
    """The fields of a thing, one a line."""
    return "\n".join(
        f"{name}: {words.one_line(_text(value))}" for name, value in found.items() if value not in (None, [])
    )


def _text(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def task(found: Mapping[str, Any]) -> str:
    rows = [*_head(found), *_facts(found), *_why(found["why"]), *_runs(found["runs"]), *_evidence(found)]
    text = words.clean(found["description"]).rstrip()
    return "\n".join([*rows, *(["", text] if text else [])])


def _head(found: Mapping[str, Any]) -> list[str]:
    effective = found["effective"]
    return [
        f"id: {found['id']}",
        f"title: {words.clean(found['title'])}",
        f"status: {words.state(found['status'])}",
        f"cwd: {found['cwd'] or '-'}",
        f"coder: {effective['agent'] or '-'}{' (default)' if effective['agent_inherited'] else ''}",
        f"model: {effective['model'] or '-'}{' (default)' if effective['model_inherited'] else ''}",
    ]


FACTS = {
    "priority": "priority",
    "project_name": "project",
    "labels": "labels",
    "file_scope": "scope",
    "depends_on": "depends on",
    "branch_name": "branch",
    "assigned_to": "assigned to",
    "outcome": "outcome",
    "result_summary": "result",
    "error_message": "error",
    "attempts": "failed attempts",
    "actual_cost_usd": "cost (USD)",
    "actual_tokens_used": "tokens",
}


def _facts(found: Mapping[str, Any]) -> list[str]:
    shown = {label: found[name] for name, label in FACTS.items() if found[name] not in (None, [], 0, "")}
    lines = [f"{label}: {_value(value)}" for label, value in shown.items()]
    if found["proven"] is not None:
        lines.append(f"proof: {'proven' if found['proven'] else 'unproven'}")
    return [*lines, f"created: {words.moment(found['created_at'])}"]


def _value(value: Any) -> str:
    return ", ".join(map(words.one_line, value)) if isinstance(value, list) else words.clean(str(value))


def _why(reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    return [line for reason in reasons for line in _reason(reason)]


def _reason(reason: Mapping[str, Any]) -> list[str]:
    until = f" (until {words.moment(reason['until'])})" if reason["until"] else ""
    lifts = [f"  goes on when: {words.clean(reason['lifts'])}"] if reason["lifts"] else []
    return [f"why: {words.clean(reason['text'])}{until}", *lifts]


def _runs(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_run(run) for run in runs]


def _run(run: Mapping[str, Any]) -> str:
    ended = words.moment(run["ended_at"]) if run["ended_at"] else run["status"]
    code = "unknown" if run["status"] == "ended" and not run["exit_known"] else run["exit_code"]
    files = f", {words.count(len(run['files']), 'file')}" if run["files"] else ""
    told = f": {words.one_line(run['reason'])}" if run["reason"] else ""
    status = "" if code is None else f" exit {code}"
    outcome = f" {run['outcome']}" if run["outcome"] else ""
    return f"run {run['number']}: {run['agent']} ({run['agent_id']}) {ended}{outcome}{status}{files}{told}"


def _evidence(found: Mapping[str, Any]) -> list[str]:
    proof = found["evidence"]
    if not proof:
        return []
    commit = f"commit {proof['commit'][:12]}" if proof["commit"] else "no commit"
    reviewer = f", approved by {proof['reviewer']}" if proof["reviewer"] else ""
    return [f"evidence: {commit}{reviewer}", *(_gate(gate) for gate in proof["gates"])]


def _gate(gate: Mapping[str, Any]) -> str:
    verdict = (
        words.paint("green", "green") if gate["exit_code"] == 0 else words.paint(f"red ({gate['exit_code']})", "red")
    )
    flaky = ", flaky" if gate["flaky"] else ""
    return f"  gate {gate['name']}: {verdict}{flaky}, {words.duration(gate['duration_ms'] / 1000)}"


@command("why")
@click.argument("target", required=False, shell_complete=offered)
def why(frame: Frame, target: str | None) -> None:
    """The rule that holds a task and what lifts it; without TARGET, why nothing runs."""
    found = frame.run(lambda fleet: fleet.why(target))
    frame.data(found, lambda: _explained(found))


def _explained(one: Mapping[str, Any]) -> str:
    head = f"{one['task_id']}  {words.state(one['status'])}  {words.clean(one['title'])}" if one["task_id"] else ""
    return "\n".join([*([head] if head else []), *("  " + line for line in _why(one["reasons"]))])
