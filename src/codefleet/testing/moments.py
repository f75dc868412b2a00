"""One chosen moment of an engine's life: a commit that is made and not heard of yet, and what can happen just then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import anyio

from codefleet.core.errors import StoreUnavailable
from codefleet.core.model import Aggregate, Fact
from codefleet.ports import Held
from codefleet.testing.faults import FaultyStore
from codefleet.testing.fleets import Fleet

A = TypeVar("A", bound=Aggregate)
T = TypeVar("T")


@dataclass
class Moment:
    """A commit that states a fact of this kind: `done` is set by then, and its caller waits for `go`."""

    kind: str
    done: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)


class Slow(FaultyStore):
    """A store whose acknowledgement of one commit comes late."""

    moment: Moment | None = None
    gone = False
    """Nobody gets through."""
    looked: int = 0
    """How often a run's watch has read its task."""

    async def _through(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.gone:
            self.calls.append("refused")
            raise StoreUnavailable("the store is out of reach")
        return await super()._through(name, call)

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        found = await super().get(kind, ids)
        self.looked += "_watch" in (anyio.get_current_task().name or "")
        return found

    async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        done = await super().commit(held, new, facts)
        moment = self.moment
        if moment is not None and any(fact.kind == moment.kind for fact in facts):
            self.moment = None
            moment.done.set()
            await moment.go.wait()
        return done


def slow(fleet: Fleet, kind: str) -> tuple[Fleet, Slow, Moment]:
    store = Slow(fleet.parts.store)
    store.moment = Moment(kind)
    return replace(fleet, parts=replace(fleet.parts, store=store)), store, store.moment


async def dies_at(fleet: Fleet, kind: str) -> None:
    """An engine that ends with a commit, before it hears of it."""
    dying, _, moment = slow(fleet, kind)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(dying.engine().run)
            await moment.done.wait()
            group.cancel_scope.cancel()
            moment.go.set()
