"""Which turn a request is for. Nothing here knows an API or a socket.

Counting requests would be wrong with retries, and counting an agent's messages would be wrong after a stream that was
cut: some agents keep its beginning. So a turn with calls is over when a result for one of its calls comes back, and a
turn of words is over when it was delivered to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from codefleet.testing.model_server.script import Fault, Op, Script, Tokens, Turn, say


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request says, in the words of no API."""

    conversation: str
    """What stays the same through a conversation; empty when the API has nothing of the kind."""
    opening: str
    """The text of its first user message."""
    said: str
    """All texts of its user messages."""
    last: str
    """The text of its newest user message."""
    results: frozenset[str]
    """Ids of the calls that it brings results for."""
    tools: tuple[str, ...] = ()
    model: str = ""
    cwd: str = ""
    stream: bool = True
    side: str = ""
    """Set when this is no turn of the conversation (a title, a summary): what to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A turn as it is to be rendered."""

    id: str
    ops: tuple[Op, ...]
    calls: tuple[str, ...]
    """An id for each operation; only calls use theirs."""
    usage: Tokens
    model: str
    cwd: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that was answered, or was about to be."""

    script: str
    conversation: str
    turn: int
    """-1: none of the script's turns."""
    attempt: int
    fault: str
    said: str
    """All that the user's side of the conversation has said so far."""
    tools: tuple[str, ...]


@dataclass(slots=True)
class Conversation:
    """How far one conversation came in its script."""

    script: Script
    id: str
    done: set[int] = field(default_factory=set)
    """Turns that are over, also when the agent has forgotten them (it may compact what it knows)."""
    attempts: Counter[int] = field(default_factory=Counter)

    def next(self, asked: Asked) -> int:
        """The place of the turn that this request is for; the number of turns when all are done."""
        for place, turn in enumerate(self.script.turns):
            if turn.calls and any(result.startswith(self._mark(place)) for result in asked.results):
                self.done.add(place)
            if place not in self.done:
                return place
        return len(self.script.turns)

    def delivered(self, place: int) -> None:
        """A turn went out to its end."""
        if place < len(self.script.turns) and not self.script.turns[place].calls:
            self.done.add(place)

    def _mark(self, place: int) -> str:
        return f"call_{self.script.name}_{place}_"

    def reply(self, place: int, asked: Asked) -> tuple[Reply, Fault | None, int]:
        """The turn at a place, the fault that hits this request, and which attempt it is."""
        self.attempts[place] += 1
        attempt = self.attempts[place]
        turn = self.script.turns[place] if place < len(self.script.turns) else Turn((say("SCRIPT EXHAUSTED"),))
        fault = turn.fault if turn.fault and turn.fault.strikes(attempt) else None
        calls = tuple(f"{self._mark(place)}{number}_{attempt}" for number in range(len(turn.ops)))
        name = f"msg_{self.script.name}_{place}_{attempt}"
        return (
            Reply(id=name, ops=turn.ops, calls=calls, usage=turn.usage, model=asked.model, cwd=asked.cwd),
            fault,
            attempt,
        )


@dataclass(slots=True)
class Conversations:
    """All conversations of a server."""

    scripts: Sequence[Script]
    known: dict[tuple[str, str], Conversation] = field(default_factory=dict)
    first: dict[str, Script] = field(default_factory=dict)

    def of(self, asked: Asked) -> Conversation:
        """The conversation of a request. Its first message chooses the script; where an agent has compacted that
        message away, the script that the conversation began with goes on."""
        script = self._script(asked)
        if asked.conversation:
            self.first.setdefault(asked.conversation, script)
        return self.known.setdefault((asked.conversation, script.name), Conversation(script, asked.conversation))

    def _script(self, asked: Asked) -> Script:
        keyed = (script for script in self.scripts if script.key and script.key in asked.opening)
        unkeyed = (script for script in self.scripts if not script.key)
        return next(keyed, None) or self.first.get(asked.conversation) or next(unkeyed, Script("", ()))
