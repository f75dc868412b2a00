"""What a line of Claude Code's `stream-json` output means. Pure, total, and blind to what it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codefleet.core.progress import Event
from codefleet.drivers import activity

_KINDS = frozenset(
    {"system", "assistant", "user", "result", "control_response", "control_request", "stream_event", "rate_limit_event"}
)

#: What a status of the API means for whoever must answer for it.
_STATUS = {401: "auth", 403: "auth", 402: "quota", 429: "quota", 404: "driver", 413: "overflow"}

#: Endings that the agent names itself.
_TERMINAL = {"prompt_too_long": "overflow", "max_turns": "turns", "api_error": "api"}

#: Errors that the agent names on the message which reports them.
_NAMED = {"authentication_failed": "auth", "billing_error": "quota", "rate_limit": "quota", "server_error": "api"}


def speaks(value: Mapping[str, Any]) -> bool:
    """Is this an object of that stream?"""
    return value.get("type") in _KINDS


def events(value: Mapping[str, Any]) -> Sequence[Event]:
    """The events of one object; none for a kind that says nothing to us."""
    step = {"system": _system, "assistant": _assistant, "user": _user, "result": _result}.get(str(value.get("type")))
    return tuple(step(value)) if step else ()


def _system(value: Mapping[str, Any]) -> Iterator[Event]:
    subtype = value.get("subtype")
    if subtype == "init":
        names = {"session_id": value.get("session_id"), "model": value.get("model")}
        version = activity.text(value.get("claude_code_version"))
        yield Event(
            "session_started", {**{key: activity.text(name) for key, name in names.items()}, "version": version}
        )
    elif subtype == "api_retry":
        yield Event(
            "retry",
            {"status": value.get("error_status"), "after": _seconds(value), "error": activity.text(value.get("error"))},
        )
    elif subtype in {"status", "compact_boundary"}:
        yield Event("log", {"text": activity.text(subtype), "object": activity.clip(value)})


def _seconds(value: Mapping[str, Any]) -> float:
    return round((activity.amount(value.get("retry_delay_ms")) or 0.0) / 1000, 3)


def _assistant(value: Mapping[str, Any]) -> Iterator[Event]:
    role = "subagent" if value.get("parent_tool_use_id") else "assistant"
    error = activity.text(value.get("error"))
    for part in _parts(value):
        if part.get("type") == "text":
            yield Event(
                "message",
                {"role": role, "text": activity.text(part.get("text")), **({"error": error} if error else {})},
            )
        elif part.get("type") == "tool_use":
            names = {key: activity.text(part.get(key)) for key in ("id", "name")}
            yield Event(
                "tool_call", {**names, "input": activity.clip(part.get("input")), "status": "started", "ms": None}
            )


def _user(value: Mapping[str, Any]) -> Iterator[Event]:
    if value.get("isReplay") is True:
        yield Event("message_taken", {"uuid": activity.text(value.get("uuid"))})
        return
    for part in _parts(value):
        if part.get("type") == "tool_result":
            status = "error" if part.get("is_error") is True else "ok"
            yield Event("tool_call", {"id": activity.text(part.get("tool_use_id")), "status": status})
    yield from _changed(value.get("tool_use_result"))


def _changed(done: object) -> Iterator[Event]:
    """The file that an edit or a write has changed."""
    if not isinstance(done, Mapping) or not isinstance(done.get("structuredPatch"), list):
        return
    created = done.get("type") == "create"
    added, removed = _lines(done["structuredPatch"])
    if created and isinstance(done.get("content"), str):
        added = len(done["content"].splitlines())
    names = {"path": activity.text(done.get("filePath")), "change_type": "created" if created else "modified"}
    yield Event(
        "file_changed",
        {**names, "lines_added": added, "lines_removed": removed, "tool": "Write" if "content" in done else "Edit"},
    )


def _lines(patch: Sequence[object]) -> tuple[int, int]:
    hunks = [hunk.get("lines") for hunk in patch if isinstance(hunk, Mapping)]
    lines = [line for hunk in hunks if isinstance(hunk, list) for line in hunk if isinstance(line, str)]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def _result(value: Mapping[str, Any]) -> Iterator[Event]:
    denials = [one for one in value.get("permission_denials") or () if isinstance(one, Mapping)]
    yield _usage(value)
    for one in denials:
        yield Event(
            "permission_denied",
            {"tool": activity.text(one.get("tool_name")), "input": activity.clip(one.get("tool_input"))},
        )
    ok = value.get("is_error") is False
    words = activity.text(value.get("result")) or _errors(value)
    yield Event("turn_ended", {"ok": ok, "error": "" if ok else _error(value), "text": words, "denials": len(denials)})


def _error(value: Mapping[str, Any]) -> str:
    """Whose error it was, by the fields that say so."""
    status, reason = value.get("api_error_status"), value.get("terminal_reason")
    if reason in {"prompt_too_long", "max_turns"}:
        return _TERMINAL[str(reason)]
    if isinstance(status, int) and not isinstance(status, bool):
        return _STATUS.get(status, "api" if status >= 500 else "own")
    return _TERMINAL.get(str(reason), "own")


def _errors(value: Mapping[str, Any]) -> str:
    errors = value.get("errors")
    return activity.text("; ".join(str(one) for one in errors)) if isinstance(errors, list) else ""


def _usage(value: Mapping[str, Any]) -> Event:
    models = value.get("modelUsage")
    each = [one for one in models.values() if isinstance(one, Mapping)] if isinstance(models, Mapping) else []
    total = {key: sum(activity.count(one.get(key)) for one in each) for key in _TOKENS}
    cached = total["cacheReadInputTokens"] + total["cacheCreationInputTokens"]
    return activity.usage(total["inputTokens"], total["outputTokens"], cached, value.get("total_cost_usd"))


_TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def _parts(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    message = value.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
