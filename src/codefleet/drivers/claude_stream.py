"""What a line of Claude Code's `stream-json` output means. Pure, total, and blind to what it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codefleet.core.progress import Event
from codefleet.drivers import activity

#: What a status of the API means for whoever must answer for it.
_STATUS = {401: "auth", 402: "quota", 403: "auth", 404: "driver", 413: "overflow", 429: "quota"}

#: Endings of a turn that name their reason.
_TERMINAL = {
    "api_error": "api",
    "max_turns": "turns",
    "prompt_too_long": "overflow",
    "rapid_refill_breaker": "overflow",
}

#: Failures that are named on the message which reports them; `unknown` and others say nothing.
_FAILURES = {
    "authentication_failed": "auth",
    "billing_error": "quota",
    "model_not_found": "driver",
    "rate_limit": "quota",
    "server_error": "api",
}

_TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def events(value: Mapping[str, Any]) -> Sequence[Event] | None:
    """The events of one object of the stream, none for what says nothing to us; None for an object of another kind."""
    match value.get("type"):
        case "system":
            return tuple(_system(value))
        case "assistant":
            return tuple(_assistant(value))
        case "user":
            return tuple(_user(value))
        case "result":
            return tuple(_result(value))
        case "stream_event" | "control_request" | "control_response" | "command_lifecycle":
            return ()
        case _:
            return None


def _system(value: Mapping[str, Any]) -> Iterator[Event]:
    match value.get("subtype"):
        case "init":
            fields = {"session_id": "session_id", "model": "model", "version": "claude_code_version"}
            yield Event("session_started", {ours: activity.text(value.get(its)) for ours, its in fields.items()})
        case "api_retry":
            waited = round((activity.amount(value.get("retry_delay_ms")) or 0.0) / 1000, 3)
            status, error = activity.clip(value.get("error_status")), activity.text(value.get("error"))
            yield Event("retry", {"status": status, "after": waited, "error": error})
        case "permission_denied":
            yield Event("permission_denied", {"tool": activity.text(value.get("tool_name")), "id": _id(value)})
        case "status" | "compact_boundary" as subtype:
            yield Event("log", {"text": subtype, "object": activity.clip(value)})


def _assistant(value: Mapping[str, Any]) -> Iterator[Event]:
    role = "subagent" if value.get("parent_tool_use_id") else "assistant"
    named = value.get("error")
    failure = {"failure": _FAILURES.get(named, "")} if isinstance(named, str) else {}
    for part in _parts(value):
        if part.get("type") == "text":
            yield Event("message", {"role": role, "text": activity.text(part.get("text")), **failure})
        elif part.get("type") == "tool_use":
            call = {"id": activity.text(part.get("id")), "name": activity.text(part.get("name"))}
            yield Event("tool_call", {**call, "input": activity.clip(part.get("input")), "status": "started"})


def _user(value: Mapping[str, Any]) -> Iterator[Event]:
    if value.get("isReplay") is True:
        yield Event("message_taken", {"uuid": activity.text(value.get("uuid"))})
        return
    for part in _parts(value):
        if part.get("type") == "tool_result":
            status = "error" if part.get("is_error") is True else "ok"
            yield Event("tool_call", {"id": _id(part), "status": status})
    yield from _changed(value.get("tool_use_result"))


def _changed(done: object) -> Iterator[Event]:
    """The file that an edit or a write has changed."""
    if not isinstance(done, Mapping) or not isinstance(done.get("structuredPatch"), list):
        return
    content = done.get("content")
    created = done.get("type") == "create"
    added, removed = _lines(done["structuredPatch"])
    if created and isinstance(content, str):
        added = len(content.splitlines())
    file = {"path": activity.text(done.get("filePath")), "change_type": "created" if created else "modified"}
    tool = "Write" if content is not None else "Edit"
    yield Event("file_changed", {**file, "lines_added": added, "lines_removed": removed, "tool": tool})


def _lines(patch: Sequence[object]) -> tuple[int, int]:
    """Lines added and removed by the hunks of a patch."""
    hunks = [hunk.get("lines") for hunk in patch if isinstance(hunk, Mapping)]
    marks = [line[:1] for hunk in hunks if isinstance(hunk, list) for line in hunk if isinstance(line, str)]
    return marks.count("+"), marks.count("-")


def _result(value: Mapping[str, Any]) -> Iterator[Event]:
    ok = value.get("is_error") is False
    listed = value.get("permission_denials")
    denials = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    if models := _models(value):
        yield _usage(value, models)
    if not _recent(value):
        for one in denials:
            yield Event("permission_denied", {"tool": activity.text(one.get("tool_name")), "id": _id(one)})
    words = activity.text(value.get("result")) or _errors(value)
    yield Event("turn_ended", {"ok": ok, "error": "" if ok else _error(value), "text": words, "denials": len(denials)})


def _recent(value: Mapping[str, Any]) -> bool:
    """Is this a version (2.1.327 and later) that reports usage and cost of the whole session, earlier processes
    included, and each denial when it happens? Earlier ones report the process, and denials at the end."""
    return "result_index" in value


def _error(value: Mapping[str, Any]) -> str:
    """Whose error it was, by the fields that say so. The subtype says "success" where the API failed."""
    status, reason = value.get("api_error_status"), str(value.get("terminal_reason"))
    if _TERMINAL.get(reason) in {"overflow", "turns"}:
        return _TERMINAL[reason]
    if isinstance(status, int):
        return _STATUS.get(status, "api" if status >= 500 else "request")
    return _TERMINAL.get(reason, "own")


def _errors(value: Mapping[str, Any]) -> str:
    errors = value.get("errors")
    return activity.text("; ".join(map(str, errors))) if isinstance(errors, list) else ""


def _models(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What each model used; none where nothing was ever asked of one."""
    models = value.get("modelUsage")
    return [one for one in models.values() if isinstance(one, Mapping)] if isinstance(models, Mapping) else []


def _usage(value: Mapping[str, Any], models: Sequence[Mapping[str, Any]]) -> Event:
    """Of all models together: the line's own `usage` leaves out what sub-agents used."""
    fresh, said, found, kept = (sum(activity.count(one.get(key)) for one in models) for key in _TOKENS)
    return activity.usage(fresh, said, found + kept, value.get("total_cost_usd"), session=_recent(value))


def _id(value: Mapping[str, Any]) -> str:
    return activity.text(value.get("tool_use_id"))


def _parts(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    message = value.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
