"""Wrappers around an engine's ports that note when each call began and ended."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from codefleet.engine.parts import Parts

WAITING = "changed"
"""The one call that is there to wait."""


@dataclass(frozen=True)
class Call:
    port: str
    name: str
    begun: float
    ended: float
    facts: tuple[str, ...] = ()
    """The kinds of facts that were committed by it."""


@dataclass
class Watch:
    """All calls of one engine's ports, in the order of their ends."""

    calls: list[Call] = field(default_factory=list)

    def over(self, parts: Parts) -> Parts:
        names = ("store", "processes", "workspaces")
        return replace(parts, **{name: _Watched(name, getattr(parts, name), self) for name in names})

    def note(self, port: str, name: str, begun: float, facts: Iterable[Any] = ()) -> None:
        kinds = tuple(fact.kind for fact in facts)
        self.calls.append(Call(port, name, begun, time.perf_counter(), kinds))

    def spent(self, port: str, begun: float, ended: float) -> float:
        """Seconds between two moments in which at least one call of a port was under way."""
        spans = sorted(
            (max(one.begun, begun), min(one.ended, ended))
            for one in self.calls
            if one.port == port and one.name != WAITING
        )
        total, reached = 0.0, begun
        for start, end in spans:
            if end > reached and start < ended:
                total += end - max(start, reached)
                reached = end
        return total


class _Watched:
    """A port, or a child, with every call noted."""

    def __init__(self, port: str, inner: Any, watch: Watch) -> None:
        self._port, self._inner, self._watch = port, inner, watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(found):
            return self._awaited(name, found)
        if name == "lines":
            return self._listened(found)
        return found

    def _awaited(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        async def noted(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            result = await act(*arguments, **named)
            facts = arguments[2] if name == "commit" and len(arguments) > 2 else ()
            self._watch.note(self._port, name, begun, facts)
            if self._port == "processes" and name in {"start", "adopt"} and result is not None:
                return _Watched("child", result, self._watch)
            return result

        return noted

    def _listened(self, act: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        async def noted(offset: int = 0) -> AsyncIterator[Any]:
            begun = time.perf_counter()
            async for line in act(offset):
                yield line
            self._watch.note(self._port, "lines", begun)

        return noted
