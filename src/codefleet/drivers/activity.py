"""From a line that an agent printed to an event: what it may contain is checked here, once for all drivers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codefleet.core.model import ACTIVITY_KINDS
from codefleet.core.progress import Event

#: A text longer than this is cut; the spool keeps the whole.
TEXT_LIMIT = 16 * 1024
_DEPTH = 8
_ITEMS = 200
_COUNT_LIMIT = 2**53


def decode(line: bytes) -> Any:
    """The JSON value of a line; None when it is none."""
    try:
        return json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def text(value: object) -> str:
    """A string that can be stored and printed, cut to what we keep."""
    words = value if isinstance(value, str) else ""
    if len(words) > TEXT_LIMIT:
        words = words[: TEXT_LIMIT - 1] + "…"
    return words.encode("utf-8", "replace").decode("utf-8")


def count(value: object) -> int:
    """A number of things; 0 when it is no such number."""
    return value if isinstance(value, int) and 0 <= value < _COUNT_LIMIT else 0


def amount(value: object) -> float | None:
    """A finite number that is not negative, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _COUNT_LIMIT:
        return None
    return float(value)


def clip(value: object, depth: int = _DEPTH) -> Any:
    """Any JSON value with long texts, deep nests and long lists cut, and nothing in it that can not be stored."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < _COUNT_LIMIT else str(value)[:40]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {text(str(key)): clip(item, depth - 1) for key, item in list(value.items())[:_ITEMS]}
    if isinstance(value, Sequence):
        return [clip(item, depth - 1) for item in value[:_ITEMS]]
    return text(str(value))


def said(words: str | bytes) -> Event:
    """A line that is only words."""
    plain = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return Event("log", {"text": text(plain)})


def event(value: Mapping[str, Any]) -> Event:
    """An object with a `type` as the activity that it names; any other becomes a `log` that keeps it."""
    kind = value.get("type")
    if isinstance(kind, str) and kind in ACTIVITY_KINDS:
        rest = {key: item for key, item in value.items() if key != "type"}
        return Event(kind, _CHECKED[kind](rest) if kind in _CHECKED else clip(rest))
    return Event("log", {"text": text(kind), "object": clip(value)})


def usage(input_: object, output: object, cached: object, cost_usd: object = None, **more: Any) -> Event:
    """Totals so far."""
    tokens = {"input": count(input_), "output": count(output), "cached": count(cached)}
    return Event("usage", {**tokens, "cost_usd": amount(cost_usd), **more})


def _message(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**clip(data), "role": text(data.get("role")) or "assistant", "text": text(data.get("text"))}


def _session(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**clip(data), "session_id": text(data.get("session_id")), "model": text(data.get("model"))}


def _usage(data: Mapping[str, Any]) -> dict[str, Any]:
    known = usage(data.get("input"), data.get("output"), data.get("cached"), data.get("cost_usd")).data
    return {**known, "context_pct": amount(data.get("context_pct"))}


def _file(data: Mapping[str, Any]) -> dict[str, Any]:
    lines = {key: count(data.get(key)) for key in ("lines_added", "lines_removed")}
    return {**clip(data), "path": text(data.get("path")), "change_type": text(data.get("change_type")), **lines}


_CHECKED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "message": _message,
    "session_started": _session,
    "usage": _usage,
    "file_changed": _file,
}
