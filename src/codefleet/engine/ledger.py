"""Changing the small aggregates beside a task: pauses and the fleet's members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from codefleet.core.errors import AlreadyRunning, Exists, NoSpace, Stale, StoreUnavailable
from codefleet.core.model import Agent, AgentStatus, Fact, Outcome, Pause, Run, Status, Task
from codefleet.core.settings import AgentType
from codefleet.core.transitions import At, pauses
from codefleet.ports import Clock, Store

PAUSE = 0.5
"""Seconds before a store that was out of reach is asked again."""

N = TypeVar("N", Pause, Agent)


async def revise(store: Store, new: N, decision: Callable[[N], tuple[N, Sequence[Fact]]]) -> tuple[N, Sequence[Fact]]:
    """Apply a decision to the aggregate of this id, made as `new` where there is none."""
    while True:
        found = await store.get(type(new), [new.id])
        before = found[0].value if found else new
        after, facts = decision(before)
        try:
            if not found:
                await store.add(after, facts)
            elif after != before:
                await store.commit(found[0], after, facts)
        except (Stale, Exists):
            continue
        return after, facts


async def _surely(
    store: Store, clock: Clock, new: N, decision: Callable[[N], tuple[N, Sequence[Fact]]]
) -> tuple[N, Sequence[Fact]]:
    """As `revise`, whatever the store's condition. What was made although nobody said so is not made twice."""
    made: tuple[N, Sequence[Fact]] | None = None

    def decide(before: N) -> tuple[N, Sequence[Fact]]:
        nonlocal made
        if made is None or before != made[0]:
            made = decision(before)
        return made

    while True:
        try:
            return await revise(store, new, decide)
        except (NoSpace, StoreUnavailable):
            await clock.sleep(PAUSE)


def selector_of(outcome: Outcome, name: str, agent: AgentType) -> str:
    """What is paused when starts fail like this: the account, or the agent type."""
    if outcome is Outcome.ACCOUNT_ERROR:
        return pauses.selector("account", agent.account or name)
    return pauses.selector("agent", name)


async def strike(store: Store, clock: Clock, selector: str, failure: str, at: At) -> Sequence[Fact]:
    """Count a failure to start, once."""
    _, facts = await _surely(store, clock, Pause(id=selector), lambda pause: pauses.strike(pause, failure, at))
    return facts


async def clear(store: Store, selectors: Sequence[str], at: At) -> None:
    """It started well: what failed before does not count any more."""
    for held in await store.get(Pause, selectors):
        if pauses.clear(held.value, at) != held.value:
            await revise(store, held.value, lambda pause: (pauses.clear(pause, at), ()))


async def lift(store: Store, pause: Pause, at: At) -> Sequence[Fact]:
    """A pause whose time has come."""
    _, facts = await revise(store, pause, lambda now: pauses.lift(now, at) if pauses.over(now, at.now) else (now, ()))
    return facts


async def join(store: Store, agent: Agent, at: At, lives: Callable[[str], bool]) -> None:
    """A member of the fleet begins; what it did before stays on its account. `AlreadyRunning` while an engine that
    lives has one of that name."""

    def joined(before: Agent) -> tuple[Agent, Sequence[Fact]]:
        if before.engine != agent.engine and before.status is not AgentStatus.OFFLINE and lives(before.engine):
            raise AlreadyRunning(f"an agent named {agent.id} is at work already", hint="choose another --name")
        now = replace(
            before,
            type=agent.type,
            engine=agent.engine,
            host=agent.host,
            status=AgentStatus.IDLE,
            current_task_id=None,
            last_heartbeat=at.now,
            updated_at=at.now,
        )
        return now, (_said("agent_started", at, agent.id, type=agent.type, engine=agent.engine),)

    await revise(store, replace(agent, created_at=at.now), joined)


async def depart(store: Store, agent: Agent, at: At, reason: str) -> None:
    def gone(before: Agent) -> tuple[Agent, Sequence[Fact]]:
        if before.engine != agent.engine or before.status is AgentStatus.OFFLINE:
            return before, ()
        now = replace(before, status=AgentStatus.OFFLINE, current_task_id=None, updated_at=at.now)
        return now, (_said("agent_stopped", at, agent.id, reason=reason),)

    await revise(store, agent, gone)


async def credit(store: Store, clock: Clock, agent: Agent, task: Task, run: Run, at: At) -> None:
    """Put a run that is over on its agent's account, once."""

    def credited(before: Agent) -> tuple[Agent, Sequence[Fact]]:
        return (
            replace(
                before,
                tasks_completed=before.tasks_completed + (task.status in {Status.COMPLETED, Status.VERIFIED}),
                tasks_failed=before.tasks_failed + (task.status is Status.FAILED),
                total_tokens_used=before.total_tokens_used + run.usage.total,
                total_cost_usd=before.total_cost_usd + (run.cost_usd or 0.0),
                last_heartbeat=at.now,
                updated_at=at.now,
            ),
            (),
        )

    await _surely(store, clock, agent, credited)


def _said(kind: str, at: At, agent: str, **data: object) -> Fact:
    return Fact(kind=kind, at=at.now, by=at.by, data={"agent_id": agent, **data})
