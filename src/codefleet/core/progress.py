"""What an agent's output has said so far: a pure fold over its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from codefleet.core.model import Usage


@dataclass(frozen=True, slots=True)
class Event:
    """What one line of an agent's output meant.

    `kind` is an activity kind (`core.model.ACTIVITY_KINDS`), or one of two that steer: `turn_ended`
    {ok, error, text, denials} and `message_taken` {uuid}. `error` is "", "auth", "quota", "overflow", "turns", "api",
    "driver" (it does not understand how it was called) or "own".
    A `usage` event carries totals so far, not increments: {input, output, cached, cost_usd, context_pct}; of its child,
    or of the whole session with all that earlier children of it reported, when it says `session: true`.
    A `message` that reports a failure names it: `failure`, a word like those of `error`.
    """

    kind: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    session_id: str = ""
    model: str = ""
    text: str = ""
    """The last thing the agent said."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """As the driver reports it for this child or session."""
    of_session: bool = False
    """`usage` and `cost_usd` are those of the session, earlier children included; see `spent`."""
    failure: str = ""
    """What the last message reports as failed, where it is such a message."""
    started: bool = False
    """The agent itself came up: it opened a session or said or did something."""
    turns: int = 0
    last_turn: dict[str, Any] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    """Uuids of our messages that the agent has acknowledged."""
    pending_turn: bool = True
    """A message was taken, or none yet, and no turn has ended since."""
    denials: int = 0
    result: dict[str, Any] | None = None
    """A result that the driver itself structured."""


STARTED_BY = frozenset({"session_started", "message", "tool_call", "file_changed", "usage"})


def fold(progress: Progress, event: Event) -> Progress:
    """The progress after one more event."""
    if event.kind in STARTED_BY and not progress.started:
        progress = replace(progress, started=True)
    step = _STEPS.get(event.kind)
    return step(progress, event.data) if step else progress


def _session(progress: Progress, data: dict[str, Any]) -> Progress:
    return replace(
        progress,
        session_id=str(data.get("session_id") or progress.session_id),
        model=str(data.get("model") or progress.model),
    )


def _message(progress: Progress, data: dict[str, Any]) -> Progress:
    if data.get("role") != "assistant":
        return progress
    return replace(progress, text=str(data.get("text", "")), failure=str(data.get("failure") or ""))


def _usage(progress: Progress, data: dict[str, Any]) -> Progress:
    usage = Usage(**{key: int(data.get(key) or 0) for key in ("input", "output", "cached")})
    cost = data.get("cost_usd")
    cost = progress.cost_usd if cost is None else float(cost)
    return replace(progress, usage=usage, cost_usd=cost, of_session=data.get("session") is True)


def _turn(progress: Progress, data: dict[str, Any]) -> Progress:
    text = str(data.get("text") or progress.text)
    return replace(progress, turns=progress.turns + 1, last_turn=data, pending_turn=False, text=text)


def _taken(progress: Progress, data: dict[str, Any]) -> Progress:
    return replace(progress, taken=progress.taken | {str(data["uuid"])}, pending_turn=True, failure="")


def _denied(progress: Progress, _: dict[str, Any]) -> Progress:
    return replace(progress, denials=progress.denials + 1)


_STEPS = {
    "session_started": _session,
    "message": _message,
    "usage": _usage,
    "turn_ended": _turn,
    "message_taken": _taken,
    "permission_denied": _denied,
}


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money."""

    usage: Usage = Usage()
    cost_usd: float | None = None

    def plus(self, more: Spent) -> Spent:
        known = [cost for cost in (self.cost_usd, more.cost_usd) if cost is not None]
        return Spent(_combined(self.usage, more.usage, 1), sum(known) if known else None)

    def beyond(self, before: Spent) -> Spent:
        """What is new since `before`; never less than nothing."""
        cost = None if self.cost_usd is None else max(0.0, self.cost_usd - (before.cost_usd or 0.0))
        return Spent(_combined(self.usage, before.usage, -1), cost)


def spent(children: Sequence[Progress], before: Mapping[str, Spent]) -> Spent:
    """What the children of a run have used, nothing counted twice. `before`: what earlier runs that had these sessions
    were counted for, by session."""
    known = dict(before)
    total = Spent()
    for child in children:
        counted = known.get(child.session_id, Spent())
        share = Spent(child.usage, child.cost_usd)
        if child.of_session:
            share = share.beyond(counted)
        known[child.session_id] = counted.plus(share)
        total = total.plus(share)
    return total


def _combined(one: Usage, other: Usage, sign: int) -> Usage:
    return Usage(
        input=max(0, one.input + sign * other.input),
        output=max(0, one.output + sign * other.output),
        cached=max(0, one.cached + sign * other.cached),
    )
