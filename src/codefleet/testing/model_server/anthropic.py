"""The Anthropic Messages API."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from codefleet.testing.model_server.conversation import Asked, Reply
from codefleet.testing.model_server.script import Op

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

_CWD = re.compile(r"^[ \-]*(?:Primary w|W)orking directory: (.+)$", re.MULTILINE)
_SUMMARY = "Your task is to create a detailed summary"


class Anthropic:
    """`POST /v1/messages`, streamed or whole."""

    overflow = "prompt is too long: 250000 tokens > 200000 maximum"

    def serves(self, path: str) -> bool:
        return path.endswith("/v1/messages")

    def asked(self, body: Mapping[str, Any]) -> Asked:
        messages = [one for one in body.get("messages", ()) if one.get("role") == "user"]
        texts = [text for text in map(_text, messages) if text]
        tools = tuple(str(tool.get("name", "")) for tool in body.get("tools") or ())
        last = texts[-1] if texts else ""
        return Asked(
            conversation=_session(body),
            opening=texts[0] if texts else "",
            said="\n".join(texts),
            last=last,
            results=frozenset(_results(messages)),
            tools=tools,
            model=str(body.get("model", "")),
            cwd=_cwd(body),
            stream=bool(body.get("stream")),
            side=_side(tools, last),
        )

    def stream(self, reply: Reply) -> Iterator[bytes]:
        start = {**_message(reply), "content": [], "stop_reason": None, "usage": {**_usage(reply), "output_tokens": 1}}
        yield _event("message_start", message=start)
        for index, block in enumerate(_blocks(reply)):
            yield from _block(index, block)
        end = {"stop_reason": _stop(reply), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage=_usage(reply))
        yield _event("message_stop")

    def whole(self, reply: Reply) -> bytes:
        message = {**_message(reply), "content": _blocks(reply), "stop_reason": _stop(reply), "usage": _usage(reply)}
        return json.dumps(message).encode()

    def error(self, status: int, text: str) -> bytes:
        return json.dumps(_error(_ERRORS.get(status, "api_error"), text)).encode()

    def error_event(self) -> bytes:
        return _event("error", **_error("overloaded_error", "Overloaded"))


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_scripted"}


def _event(name: str, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def _block(index: int, block: Mapping[str, Any]) -> Iterator[bytes]:
    if block["type"] == "text":
        begun: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
    else:
        begun = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(json.dumps(block["input"]))]
    yield _event("content_block_start", index=index, content_block=begun)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _pieces(text: str, size: int = 4096) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def _message(reply: Reply) -> dict[str, Any]:
    return {"id": reply.id, "type": "message", "role": "assistant", "model": reply.model, "stop_sequence": None}


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "input_tokens": reply.usage.input,
        "cache_creation_input_tokens": reply.usage.cache_write,
        "cache_read_input_tokens": reply.usage.cache_read,
        "output_tokens": reply.usage.output,
    }


def _stop(reply: Reply) -> str:
    return "tool_use" if any(op.kind != "say" for op in reply.ops) else "end_turn"


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    return [_rendered(op, call, reply.cwd) for op, call in zip(reply.ops, reply.calls, strict=True)]


def _rendered(op: Op, call: str, cwd: str) -> dict[str, Any]:
    if op.kind == "say":
        return {"type": "text", "text": op.data["text"]}
    name, given = _call(op, cwd)
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def _call(op: Op, cwd: str) -> tuple[str, dict[str, Any]]:
    """The tool, as Claude Code offers it, and its input."""
    data = op.data
    path = str(PurePosixPath(cwd or "/") / data.get("path", ""))
    match op.kind:
        case "write":
            return "Write", {"file_path": path, "content": data["text"]}
        case "edit":
            return "Edit", {"file_path": path, "old_string": data["old"], "new_string": data["new"]}
        case "read":
            return "Read", {"file_path": path}
        case "call":
            return data["tool"], dict(data["input"])
        case "ask":
            return "Bash", {"command": _ask(data), "description": "ask a person"}
        case _:
            return "Bash", {"command": data["command"], "description": "scripted command"}


def _ask(data: Mapping[str, Any]) -> str:
    words = [data["text"], *(word for option in data.get("options", ()) for word in ("--option", option))]
    return shlex.join(["codefleet", "agent", "ask", *words])


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _text(message: Mapping[str, Any]) -> str:
    return "\n".join(str(part.get("text", "")) for part in _parts(message) if part.get("type") == "text")


def _results(messages: list[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        for part in _parts(message):
            if part.get("type") == "tool_result":
                yield str(part.get("tool_use_id", ""))


def _session(body: Mapping[str, Any]) -> str:
    """The session that the agent names in the metadata: a JSON object in a string."""
    name = str((body.get("metadata") or {}).get("user_id", ""))
    try:
        return str(json.loads(name)["session_id"])
    except (ValueError, KeyError, TypeError):
        return name


def _cwd(body: Mapping[str, Any]) -> str:
    found = _CWD.search("\n".join(_everything(body)))
    return found[1].strip() if found else ""


def _everything(body: Mapping[str, Any]) -> Iterator[str]:
    system = body.get("system")
    yield from [system] if isinstance(system, str) else [str(part.get("text", "")) for part in system or ()]
    for message in body.get("messages", ()):
        yield _text(message)


def _side(tools: tuple[str, ...], last: str) -> str:
    """No tools offered: a title or the like. A summary is asked for with tools."""
    if _SUMMARY in last:
        return "<summary>The work is under way.</summary>"
    return "" if tools else "ok"
