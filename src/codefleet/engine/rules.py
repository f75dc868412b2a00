"""What follows from a task's state for others. Level-triggered: safe to run twice, anywhere, by anyone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from codefleet.core.model import TERMINAL, Status, Task
from codefleet.core.transitions import At, Change, rules
from codefleet.engine import decide
from codefleet.ports import Store

LOST = {Status.FAILED: "has failed", Status.CANCELLED: "was cancelled"}


async def unlock(store: Store, key: str, at: At) -> int:
    """Tell every task that waits for this one how it stands now; how many of them may start because of it."""
    upstream = (await decide.task(store, key)).value
    started = 0
    async for waiting in _waiting_on(store, key):
        change = await decide.change(store, waiting, partial(_told, upstream=upstream, at=at))
        started += any(fact.kind == "task_unblocked" for fact in change.facts)
    return started


async def _waiting_on(store: Store, key: str) -> AsyncIterator[str]:
    after = ""
    while page := await store.waiting_on(key, after):
        for each in page:
            yield each
        after = page[-1]


def _told(task: Task, upstream: Task, at: At) -> Change:
    if upstream.id not in task.depends_on:
        return Change(task)
    if upstream.status is Status.COMPLETED:
        return rules.meet(task, upstream.id, at)
    if upstream.status in LOST:
        return rules.lose(task, upstream.id, LOST[upstream.status], at)
    return rules.rearm(task, at) if task.hold and task.hold.on == upstream.id else Change(task)


async def recheck(store: Store, key: str, at: At) -> None:
    """Read everything that a blocked task waits for and draw the consequences, in case nobody told it."""
    task = (await decide.task(store, key)).value
    for held in await store.get(Task, task.blocked_by):
        if held.value.status in TERMINAL:
            await decide.change(store, key, partial(_told, upstream=held.value, at=at))


async def due(store: Store, key: str, at: At) -> Change:
    """Lift a hold whose time has come."""
    return await decide.change(store, key, lambda task: rules.due(task, at.now, at))
