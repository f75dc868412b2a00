"""Get, decide, commit, and decide again when somebody was first: the only way a task changes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import anyio

from codefleet.core.errors import NoSpace, NotFound, Stale, StoreUnavailable
from codefleet.core.model import Aggregate, Task
from codefleet.core.transitions import Change
from codefleet.ports import Clock, Filter, Held, Page, Store

A = TypeVar("A", bound=Aggregate)

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


async def every(store: Store, kind: type[A], where: Filter) -> AsyncIterator[A]:
    """All that a list has, however many there are."""
    after = ""
    while True:
        page = await store.find(kind, where, Page(limit=500, after=after))
        for one in page.items:
            yield one
        if not (after := page.after):
            return


async def task(store: Store, key: str) -> Held[Task]:
    """The task as it is now."""
    found = await store.get(Task, [key])
    if not found:
        raise NotFound(f"there is no task {key}", hint="`codefleet tasks --all` lists them")
    return found[0]


async def change(store: Store, key: str, decision: Callable[[Task], Change]) -> Change:
    """Apply a pure decision to the task as it is; what the decision raises is the caller's.

    A decision that changes nothing and states nothing commits nothing.
    """
    while True:
        held = await task(store, key)
        made = decision(held.value)
        if made.task == held.value and not made.facts:
            return made
        try:
            with anyio.CancelScope(shield=True):  # whoever has committed something must know it
                await store.commit(held, made.task, made.facts)
        except Stale:
            continue
        return made


async def patiently(store: Store, clock: Clock, key: str, decision: Callable[[Task], Change]) -> Change:
    """As `change`, but hold on while the store is out of reach or its disk is full: what an engine has to say of a run
    must not be lost. A commit whose outcome was unknown is recognised and not made twice."""
    made: Change | None = None
    pause = FIRST_PAUSE

    def decide(now: Task) -> Change:
        nonlocal made
        if made is None or now != made.task:
            made = decision(now)
            return made
        return Change(now, kept=made.kept)

    while True:
        try:
            done = await change(store, key, decide)
        except (NoSpace, StoreUnavailable) as error:
            log.warning("store_waits", extra={"task_id": key, "error": error.message})
            await clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            return made or done
