"""Get, decide, commit, and decide again when somebody was first: the only way a task changes."""

from __future__ import annotations

from collections.abc import Callable

from codefleet.core.errors import NotFound, Stale
from codefleet.core.model import Task
from codefleet.core.transitions import Change
from codefleet.ports import Held, Store


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
            await store.commit(held, made.task, made.facts)
        except Stale:
            continue
        return made
