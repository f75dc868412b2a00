"""Aggregates to fill stores with, and how the contracts open, read and settle them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from codefleet.core.layout import Home
from codefleet.core.model import (
    Agent,
    Aggregate,
    Complexity,
    Engine,
    Evidence,
    Fact,
    GateResult,
    Hold,
    Pause,
    Project,
    Proof,
    Question,
    Run,
    Status,
    Task,
    Usage,
)
from codefleet.ports import Held, Store, SystemClock
from codefleet.stores.sqlite import SqliteStore

A = TypeVar("A", bound=Aggregate)
S = TypeVar("S", bound=Store)
Factory = Callable[[], Store]

#: Nothing here takes long: this only guards against hanging.
DEADLINE = 30


def task(key: str, **given: Any) -> Task:
    """A pending task of project `p`; all fields can be given."""
    fields: dict[str, Any] = {"project": "p", "title": f"task {key}", "status": Status.PENDING}
    return Task(id=key, created_at=1, updated_at=1, **{**fields, **given})


def run(key: str, number: int = 1, **given: Any) -> Run:
    """A run of a task."""
    fields: dict[str, Any] = {"project": "p", "epoch": number, "engine": "e1", "agent_id": "runner-1", "agent": "stub"}
    return Run(id=f"{key}.{number}", task_id=key, number=number, **{**fields, **given})


def fact(kind: str = "task_edited", **given: Any) -> Fact:
    fields: dict[str, Any] = {"at": 1, "by": "person"}
    return Fact(kind=kind, **{**fields, **given})


def engine(key: str, **given: Any) -> Engine:
    fields: dict[str, Any] = {"host": "h", "pid": 1, "version": "1", "slots": 2}
    return Engine(id=key, **{**fields, **given})


def every_kind() -> Sequence[Aggregate]:
    """One of each kind of aggregate, all with the same id where that is free to choose."""
    return (
        task("x"),
        Project(id="x", name="X", paths={"h": "/p"}, created_at=1),
        run("x"),
        Agent(id="x", type="stub", engine="e1", total_cost_usd=0.25),
        engine("x"),
        Pause(id="x", active=True, until=5, question=Question(id="q_x", text="why?", asked_at=1)),
        Proof(id="x", project="p", tree="t", gates=(GateResult(name="g", exit_code=0),), made_at=1),
    )


def rich_task() -> Task:
    """A task that uses what a document can hold."""
    return task(
        "rich",
        description="\N{ROCKET} nul:\0 quote:' slash:\\ line:\n $(touch x) " + "é" * 1000,
        complexity=Complexity.XL,
        priority=5,
        rank=-(2**62),
        depends_on=("a", "b"),
        blocked_by=("b",),
        file_scope=("src/**", "tests/*.py"),
        labels=("bug", "größe"),
        status=Status.WAITING,
        run=run("rich", 2, usage=Usage(input=1, output=2), cost_usd=0.1),
        lingering=(run("rich"),),
        hold=Hold(kind="time", text="later", until=2**53, on="b"),
        question=Question(id="q_rich.1", text="?", asked_at=3, options=("y", "n"), live=True),
        evidence=Evidence(commit="c", tree="t", gates=(GateResult(name="g", exit_code=None, flaky=True),)),
        notes=("one", "two"),
        cost_usd=0.30000000000000004,
    )


def embedded(folder: Path, **given: Any) -> SqliteStore:
    """The embedded store in a folder that is laid out like a home."""
    home = Home(folder)
    given.setdefault("clock", SystemClock())
    return SqliteStore(home.database, wake=home.wake, backups=home.backups, **given)


@asynccontextmanager
async def opened(store: S) -> AsyncIterator[S]:
    """The store, open; closed at the end. Waits for nothing longer than the deadline."""
    with anyio.fail_after(DEADLINE):
        await store.open()
        try:
            yield store
        finally:
            await store.close()


async def the(store: Store, kind: type[A], key: str) -> Held[A]:
    """The one aggregate of that id."""
    [held] = await store.get(kind, [key])
    return held


async def settle(store: Store) -> None:
    """Move all facts from outboxes into the log, where there are outboxes; also those that another handle left."""
    await anyio.sleep(2 * (await store.open()).lag)
    while await store.relay():
        pass


async def facts_of(store: Store, after: str = "", **given: Any) -> Sequence[Fact]:
    await settle(store)
    return await store.facts(after, **given)


async def follow(store: Store, until: int) -> Sequence[Fact]:
    """Read facts in small steps while they are written, until there are so many."""
    seen: list[Fact] = []
    while len(seen) < until:
        await store.relay()
        seen += await store.facts(seen[-1].position if seen else "", 3)
        await anyio.lowlevel.checkpoint()
    return seen
