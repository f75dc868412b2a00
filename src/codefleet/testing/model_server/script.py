"""What the model is to say: turns of abstract operations, which each API renders in its own words.

As JSON, for a file:

    {"scripts": [{"name": "a", "key": "words of the first message", "turns": [TURN, …]}]}

A turn is a list of operations, or `{"do": [OPERATION, …], "fault": {…}, "usage": {…}}`. The operations:

    {"say": TEXT}                            {"read": PATH}
    {"write": PATH, "text": TEXT}            {"shell": COMMAND}
    {"edit": PATH, "old": TEXT, "new": TEXT} {"ask": TEXT, "options": [TEXT, …]}
    {"call": TOOL, "input": {…}}

A turn with an operation other than `say` waits for the results of its calls; one that only says something ends the
agent's turn. The faults, each for the first `times` requests of its turn (-1: always):

    {"kind": "http", "status": 429, "retry_after": 2}    an answer with this status and no turn
    {"kind": "overflow"}                                 the prompt is too long
    {"kind": "stall", "where": W, "seconds": S}          silence, then the turn (or its rest)
    {"kind": "disconnect", "where": W}                   the connection is dropped
    {"kind": "event"}                                    an error inside the stream
    {"kind": "garbage"}                                  an answer that is no answer of this API

W is `before` the headers, at the `start` of the stream or in its `middle`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["say", "write", "edit", "read", "shell", "ask", "call"]
KINDS: tuple[Kind, ...] = ("say", "write", "edit", "read", "shell", "ask", "call")


@dataclass(frozen=True, slots=True)
class Op:
    """One thing that the model says or wants done."""

    kind: Kind
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Literal["http", "overflow", "stall", "disconnect", "event", "garbage"]
    where: Literal["before", "start", "middle"] = "middle"
    status: int = 500
    retry_after: float | None = None
    seconds: float = 600
    times: int = 1

    def strikes(self, attempt: int) -> bool:
        """Does it hit this request, counted from 1?"""
        return self.times < 0 or attempt <= self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a turn claims to have used."""

    input: int = 1000
    output: int = 50
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    ops: tuple[Op, ...]
    fault: Fault | None = None
    usage: Tokens = Tokens()

    @property
    def calls(self) -> bool:
        """Does it wait for results?"""
        return any(op.kind != "say" for op in self.ops)


@dataclass(frozen=True, slots=True)
class Script:
    """The turns of one conversation; it is chosen by words that the conversation's first message contains."""

    name: str
    turns: tuple[Turn, ...]
    key: str = ""
    """Empty: any conversation that no other script claims."""


def turn(*ops: Op, fault: Fault | None = None, usage: Tokens = Tokens()) -> Turn:
    return Turn(ops, fault, usage)


def say(text: str) -> Op:
    return Op("say", {"text": text})


def write(path: str, text: str) -> Op:
    return Op("write", {"path": path, "text": text})


def edit(path: str, old: str, new: str) -> Op:
    return Op("edit", {"path": path, "old": old, "new": new})


def read(path: str) -> Op:
    return Op("read", {"path": path})


def shell(command: str) -> Op:
    return Op("shell", {"command": command})


def ask(text: str, *options: str) -> Op:
    """Ask a person through the fleet's own command."""
    return Op("ask", {"text": text, "options": options})


def call(tool: str, input_: Mapping[str, Any]) -> Op:
    """A call of a tool by its name, as it is."""
    return Op("call", {"tool": tool, "input": input_})


def load(path: Path) -> tuple[Script, ...]:
    """The scripts of a file; ValueError names what is wrong."""
    return tuple(parse(json.loads(path.read_text(encoding="utf-8"))))


def parse(document: Mapping[str, Any]) -> Iterable[Script]:
    for number, one in enumerate(document["scripts"]):
        turns = tuple(_turn(each) for each in one["turns"])
        yield Script(one.get("name", str(number)), turns, one.get("key", ""))


def _turn(value: Any) -> Turn:
    form: dict[str, Any] = {"do": value} if isinstance(value, list) else value
    fault = Fault(**form["fault"]) if form.get("fault") else None
    return Turn(tuple(_op(one) for one in form.get("do", ())), fault, Tokens(**form.get("usage", {})))


def _op(value: Mapping[str, Any]) -> Op:
    kind = next((kind for kind in KINDS if kind in value), None)
    if kind is None:
        raise ValueError(f"an operation is one of {', '.join(KINDS)}, not {dict(value)}")
    name = {"say": "text", "ask": "text", "shell": "command", "call": "tool"}.get(kind, "path")
    return Op(kind, {name: value[kind], **{key: item for key, item in value.items() if key != kind}})
