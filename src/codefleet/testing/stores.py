"""The contract of `ports.Store` as behaviour: subclass `StoreContract` and give it a `store_factory`.

`store_factory()` gives another handle to the one store of a test: what another process would open. A store in memory
gives the same object again. `CoreContract` is the part that carries all else: aggregates, facts and readiness.
Where a list may lag (`StoreInfo.lag`), the contract waits for it under a deadline; where it may not, it does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest

from codefleet.core.errors import Exists, InvalidInput, Missing, PositionGone, Stale, StoreUnavailable
from codefleet.core.layout import Home
from codefleet.core.model import (
    Activity,
    Agent,
    Aggregate,
    Complexity,
    Engine,
    Evidence,
    Fact,
    GateResult,
    Hold,
    Lane,
    Pause,
    Project,
    Proof,
    Question,
    Run,
    Status,
    Task,
    Usage,
)
from codefleet.ports import Filter, Held, Page, Store, SystemClock
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


class CoreContract:
    """`open get add commit ready facts relay`."""

    @pytest.fixture
    async def store(self, store_factory: Factory) -> AsyncIterator[Store]:
        async with opened(store_factory()) as store:
            yield store

    async def expect(self, store: Store, ask: Callable[[], Awaitable[object]], wanted: object) -> None:
        """A list says what is wanted: at once, or within its lag."""
        lag = (await store.open()).lag
        found = await ask()
        with anyio.move_on_after(10 * lag):
            while lag and found != wanted:
                await anyio.sleep(lag / 10)
                found = await ask()
        assert found == wanted

    async def ready(
        self, store: Store, lanes: Sequence[Lane], wanted: Sequence[str], *, limit: int = 10, skip: int = 0
    ) -> None:
        await self.expect(store, lambda: store.ready(lanes, limit, skip), wanted)

    # -------------------------------------------------------------------------------------------------- life

    async def test_opening_says_what_store_it_is_and_opening_twice_is_harmless(self, store: Store) -> None:
        info = await store.open()
        assert info.kind
        assert info.schema >= 1
        assert info == await store.open()

    async def test_what_was_acknowledged_is_there_after_closing_and_opening(self, store_factory: Factory) -> None:
        async with opened(store_factory()) as store:
            held = await store.add(task("a"), [fact("task_created", task_id="a")])
            await store.commit(held, replace(held.value, title="new"), [fact("task_edited", task_id="a")])
        async with opened(store_factory()) as store:
            assert (await the(store, Task, "a")).value.title == "new"
            assert [each.kind for each in await facts_of(store)] == ["task_created", "task_edited"]

    async def test_a_closed_store_refuses_and_closing_twice_is_harmless(self, store_factory: Factory) -> None:
        async with opened(store_factory()) as store:
            held = await store.add(task("a"))
            await store.close()
            with pytest.raises(StoreUnavailable):
                await store.get(Task, ["a"])
            with pytest.raises(StoreUnavailable):
                await store.add(task("b"))
            with pytest.raises(StoreUnavailable):
                await store.commit(held, replace(held.value, title="new"))

    # --------------------------------------------------------------------------------------------- get, add

    async def test_get_gives_those_that_exist_in_the_order_asked_for(self, store: Store) -> None:
        for key in "abc":
            await store.add(task(key))
        found = await store.get(Task, ["c", "nobody", "a", "c"])
        assert [held.value.id for held in found] == ["c", "a", "c"]
        assert not await store.get(Task, [])

    async def test_every_kind_is_kept_exactly_and_kinds_do_not_mix(self, store: Store) -> None:
        for value in every_kind():
            assert (await store.add(value)).value == value
        for value in every_kind():
            assert (await the(store, type(value), value.id)).value == value

    async def test_a_document_is_kept_to_the_last_character(self, store: Store) -> None:
        value = rich_task()
        assert (await store.add(value)).value == value
        assert (await the(store, Task, "rich")).value == value

    async def test_a_description_of_a_megabyte_is_kept(self, store: Store) -> None:
        value = task("big", description="0123456789abcde\n" * 65536)
        held = await store.add(value)
        await store.commit(held, replace(value, title="new"))
        assert (await the(store, Task, "big")).value == replace(value, title="new")

    async def test_text_that_is_no_text_is_refused_and_others_are_served_on(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.add(task("bad", title="\udc80"))
        with pytest.raises(InvalidInput):
            await store.add(task("bad"), [fact(by="\udc80")])
        await store.add(task("good"))
        assert not await store.get(Task, ["bad"])
        assert not await facts_of(store)

    async def test_adding_the_same_again_returns_what_is_stored_and_states_nothing(self, store: Store) -> None:
        first = await store.add(task("a"), [fact("task_created")])
        again = await store.add(task("a"), [fact("task_created")])
        assert again == first
        assert len(await facts_of(store)) == 1
        moved = await store.commit(first, replace(first.value, title="moved on"))
        assert await store.add(task("a"), [fact("task_created")]) == moved
        assert len(await facts_of(store)) == 1

    async def test_adding_other_content_under_a_taken_id_is_refused_and_changes_nothing(self, store: Store) -> None:
        held = await store.add(task("a"))
        with pytest.raises(Exists):
            await store.add(task("a", title="other"), [fact("task_created")])
        assert await the(store, Task, "a") == held
        assert not await facts_of(store)

    # ------------------------------------------------------------------------------------------------ commit

    async def test_commit_replaces_the_version_held_and_gives_the_next(self, store: Store) -> None:
        held = await store.add(task("a"))
        for title in ("one", "two", "three"):
            held = await store.commit(held, replace(held.value, title=title))
            assert held.value.title == title
            assert await the(store, Task, "a") == held

    async def test_a_version_read_by_another_handle_can_be_committed(
        self, store: Store, store_factory: Factory
    ) -> None:
        await store.add(task("a"))
        other = store_factory()
        await other.open()
        held = await the(other, Task, "a")
        await store.commit(held, replace(held.value, title="new"))
        assert (await the(other, Task, "a")).value.title == "new"
        await other.close()

    async def test_a_stale_commit_writes_nothing(self, store: Store) -> None:
        old = await store.add(task("a"))
        new = await store.commit(old, replace(old.value, title="new"), [fact("task_edited")])
        with pytest.raises(Stale):
            await store.commit(old, replace(old.value, title="late", status=Status.FAILED), [fact("task_failed")])
        assert await the(store, Task, "a") == new
        assert [each.kind for each in await facts_of(store)] == ["task_edited"]
        await self.ready(store, [], ["a"])

    async def test_a_commit_that_changes_nothing_is_a_version_of_its_own(self, store: Store) -> None:
        """A fence: whoever decided on the version before must decide again."""
        held = await store.add(task("a"))
        await store.commit(held, held.value)
        with pytest.raises(Stale):
            await store.commit(held, replace(held.value, title="late"))

    async def test_commit_keeps_kind_and_id(self, store: Store) -> None:
        held: Held[Any] = await store.add(task("x"))
        with pytest.raises(InvalidInput):
            await store.commit(held, replace(held.value, id="y"))
        with pytest.raises(InvalidInput):
            await store.commit(held, Project(id="x", name="x"))

    async def test_committing_what_is_not_there_is_missing(self, store: Store) -> None:
        held = await store.add(task("a"))
        with pytest.raises(Missing):
            await store.commit(Held(task("b"), held.version), task("b", title="new"), [fact()])
        assert not await store.get(Task, ["b"])
        assert not await facts_of(store)

    async def test_of_many_who_commit_one_version_exactly_one_wins(self, store_factory: Factory) -> None:
        won: list[str] = []

        async def attempt(store: Store, held: Held[Task], who: str) -> None:
            try:
                await store.commit(held, replace(held.value, assigned_to=who), [fact("task_assigned", by=who)])
            except Stale:
                return
            won.append(who)

        async with self.handles(store_factory, 2) as stores:
            await stores[0].add(task("a"))
            held = [await the(store, Task, "a") for store in stores]
            async with anyio.create_task_group() as group:
                for n in range(20):
                    group.start_soon(attempt, stores[n % 2], held[n % 2], f"w{n}")
            assert won == [(await the(stores[1], Task, "a")).value.assigned_to]
            assert [each.by for each in await facts_of(stores[0])] == won

    @asynccontextmanager
    async def handles(self, store_factory: Factory, number: int) -> AsyncIterator[Sequence[Store]]:
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(opened(store_factory())) for _ in range(number)]

    async def test_of_many_who_add_one_id_one_wins_and_the_others_hear_it(self, store_factory: Factory) -> None:
        refused: list[str] = []

        async def attempt(store: Store, title: str) -> None:
            try:
                await store.add(task("a", title=title), [fact("task_created", by=title)])
            except Exists:
                refused.append(title)

        async with self.handles(store_factory, 2) as stores:
            async with anyio.create_task_group() as group:
                for n in range(10):
                    group.start_soon(attempt, stores[n % 2], f"t{n}")
            winner = (await the(stores[0], Task, "a")).value.title
            assert sorted([*refused, winner]) == [f"t{n}" for n in range(10)]
            assert [each.by for each in await facts_of(stores[1])] == [winner]

    async def test_no_update_is_lost_among_those_who_decide_again(self, store_factory: Factory) -> None:
        async def count(store: Store) -> None:
            for _ in range(5):
                while not await self._counted(store):
                    pass

        async with self.handles(store_factory, 2) as stores:
            await stores[0].add(task("a"))
            async with anyio.create_task_group() as group:
                for n in range(6):
                    group.start_soon(count, stores[n % 2])
            assert (await the(stores[0], Task, "a")).value.attempts == 30
            assert len(await facts_of(stores[0])) == 30

    async def _counted(self, store: Store) -> bool:
        held = await the(store, Task, "a")
        try:
            await store.commit(held, replace(held.value, attempts=held.value.attempts + 1), [fact(task_id="a")])
        except Stale:
            return False
        return True

    # ------------------------------------------------------------------------------------------------- facts

    async def test_facts_come_back_as_they_were_stated_each_with_a_position(self, store: Store) -> None:
        stated = [
            fact("task_created", project="p", task_id="a", data={"title": "t\0\N{ROCKET}", "n": [1, None, {"x": 0.5}]}),
            fact("task_assigned", task_id="a", run="a.1", epoch=3),
        ]
        await store.add(task("a"), stated)
        found = await facts_of(store)
        assert [replace(each, position="") for each in found] == stated
        assert len({each.position for each in found}) == 2
        assert all(each.position for each in found)

    async def test_facts_behind_a_position_are_those_stated_later(self, store: Store) -> None:
        held = await store.add(task("a"), [fact("task_created"), fact("task_held")])
        [_, second] = await facts_of(store)
        await store.commit(held, held.value, [fact("task_released")])
        assert [each.kind for each in await facts_of(store, second.position)] == ["task_released"]
        [third] = await store.facts(second.position)
        assert not await store.facts(third.position)

    async def test_facts_are_given_up_to_a_limit_and_of_one_task_when_asked(self, store: Store) -> None:
        for n, key in enumerate("abab"):
            await store.add(task(f"t{n}"), [fact(task_id=key)])
            await settle(store)
        assert [each.task_id for each in await store.facts(limit=3)] == ["a", "b", "a"]
        [first, second] = await store.facts(task="b")
        assert [first.task_id, second.task_id] == ["b", "b"]
        assert await store.facts(first.position, task="b") == [second]
        assert await store.facts(limit=1, task="b") == [first]

    async def test_a_follower_sees_every_fact_once_and_in_one_order(self, store_factory: Factory) -> None:
        followed: list[Sequence[Fact]] = []

        async def write(store: Store, name: str) -> None:
            held = await store.add(task(name), [fact(task_id=name, data={"n": 0})])
            for n in range(1, 6):
                held = await store.commit(held, held.value, [fact(task_id=name, data={"n": n})])

        async def read(store: Store) -> None:
            followed.append(await follow(store, 24))

        async with self.handles(store_factory, 2) as stores:
            async with anyio.create_task_group() as group:
                for n in range(4):
                    group.start_soon(write, stores[n % 2], f"t{n}")
                    group.start_soon(read, stores[n % 2])
            whole = await facts_of(stores[0])
        assert all(list(each) == list(whole) for each in followed)
        for name in {each.task_id for each in whole}:
            assert [each.data["n"] for each in whole if each.task_id == name] == list(range(6))

    async def test_relaying_again_moves_nothing_twice(self, store: Store) -> None:
        await store.add(task("a"), [fact("task_created")])
        await settle(store)
        assert await store.relay() == 0
        assert len(await store.facts()) == 1

    # ------------------------------------------------------------------------------------------------- ready

    async def test_ready_are_pending_tasks_without_hold_by_rank(self, store: Store) -> None:
        hold = Hold(kind="person", text="wait")
        await store.add(task("later", rank=6))
        await store.add(task("held", rank=1, hold=hold))
        await store.add(task("first", rank=-7))
        await store.add(task("blocked", rank=0, status=Status.BLOCKED, blocked_by=("late",)))
        await store.add(task("late", rank=5))
        await self.ready(store, [], ["first", "late", "later"])
        held = await the(store, Task, "held")
        await store.commit(held, replace(held.value, hold=None))
        first = await the(store, Task, "first")
        await store.commit(first, replace(first.value, status=Status.ASSIGNED))
        await self.ready(store, [], ["held", "late", "later"])

    async def test_ready_looks_into_the_lanes_asked_for(self, store: Store) -> None:
        for n, (project, agent) in enumerate([("p", ""), ("q", ""), ("p", "claude"), ("p", ""), ("q", "claude")]):
            await store.add(task(f"t{n}", project=project, agent=agent, rank=n))
        await self.ready(store, [Lane("p")], ["t0", "t3"])
        await self.ready(store, [Lane("p", "claude"), Lane("q")], ["t1", "t2"])
        await self.ready(store, [Lane("nowhere")], [])
        await self.ready(store, [], ["t0", "t1", "t2", "t3", "t4"])

    async def test_ready_skips_and_stops_where_it_is_told_to(self, store: Store) -> None:
        for n in range(6):
            await store.add(task(f"t{n}", rank=n, agent="claude" if n % 2 else ""))
        await self.ready(store, [], ["t2", "t3"], limit=2, skip=2)
        await self.ready(store, [Lane("p")], ["t4"], limit=2, skip=2)
        await self.ready(store, [], [], limit=2, skip=6)


class StoreContract(CoreContract):
    """All of `ports.Store`."""

    # ------------------------------------------------------------------------------------------------- lists

    async def test_of_equal_rank_the_older_task_is_ready_first(self, store: Store) -> None:
        for key in ("b", "c", "a"):
            await store.add(task(key, rank=1, agent=key))
        await self.ready(store, [], ["b", "c", "a"])

    async def test_lanes_are_those_that_have_something_ready(self, store: Store) -> None:
        await store.add(task("a", agent="claude"))
        await store.add(task("b", project="q", hold=Hold(kind="person", text="wait")))
        held = await store.add(task("c"))
        await self.expect(store, store.lanes, [Lane("p"), Lane("p", "claude")])
        await store.commit(held, replace(held.value, status=Status.ASSIGNED))
        await self.expect(store, store.lanes, [Lane("p", "claude")])

    async def test_waiting_on_a_task_are_those_blocked_by_it_or_held_because_of_it(self, store: Store) -> None:
        await store.add(task("x"))
        await store.add(task("c", status=Status.BLOCKED, blocked_by=("x", "y")))
        await store.add(task("a", hold=Hold(kind="scope", text="", on="x")))
        await store.add(task("b", status=Status.BLOCKED, blocked_by=("x",)))
        await store.add(task("d", status=Status.BLOCKED, blocked_by=("y",), depends_on=("x", "y")))
        await self.expect(store, lambda: store.waiting_on("x"), ["a", "b", "c"])
        await self.expect(store, lambda: store.waiting_on("x", after="a", limit=1), ["b"])
        for key in ("a", "b"):
            held = await the(store, Task, key)
            await store.commit(held, replace(held.value, status=Status.PENDING, hold=None, blocked_by=()))
        held = await the(store, Task, "d")
        await store.commit(held, replace(held.value, blocked_by=("y", "x")))
        await self.expect(store, lambda: store.waiting_on("x"), ["c", "d"])

    async def test_an_engine_owns_tasks_whose_run_has_not_ended(self, store: Store) -> None:
        await store.add(task("live", run=run("live")))
        await store.add(task("over", run=run("over", ended_at=5)))
        await store.add(task("other", run=run("other", engine="e2")))
        await store.add(task("linger", run=run("linger", 2, engine="e2"), lingering=(run("linger"),)))
        await store.add(task("never"))
        await self.expect(store, lambda: store.owned_by("e1"), ["linger", "live"])
        await self.expect(store, lambda: store.owned_by("e2"), ["linger", "other"])
        await self.expect(store, lambda: store.owned_by("e"), [])
        held = await the(store, Task, "live")
        await store.commit(held, replace(held.value, run=run("live", engine="e3")))
        await self.expect(store, lambda: store.owned_by("e1"), ["linger"])
        await self.expect(store, lambda: store.owned_by("e3"), ["live"])

    async def overdue(self, store: Store, now: int, wanted: set[str]) -> None:
        async def ask() -> set[str]:
            return set(await store.overdue(now))

        await self.expect(store, ask, wanted)

    async def test_overdue_are_holds_whose_time_has_come(self, store: Store) -> None:
        await store.add(task("a", hold=Hold(kind="time", text="", until=100)))
        await store.add(task("b", status=Status.BLOCKED, blocked_by=("a",), hold=Hold(kind="time", text="", until=200)))
        await store.add(task("c", status=Status.CANCELLED, hold=Hold(kind="time", text="", until=100)))
        await store.add(task("d", hold=Hold(kind="person", text="")))
        await self.overdue(store, 99, set())
        await self.overdue(store, 100, {"a"})
        await self.overdue(store, 200, {"a", "b"})

    async def test_overdue_are_blocked_tasks_whose_dependencies_have_all_ended(self, store: Store) -> None:
        await store.add(task("x", status=Status.COMPLETED))
        y = await store.add(task("y"))
        await store.add(task("one", status=Status.BLOCKED, blocked_by=("x",)))
        await store.add(task("two", status=Status.BLOCKED, blocked_by=("x", "y")))
        await store.add(task("far", status=Status.BLOCKED, blocked_by=("x", "elsewhere")))
        await store.add(task("none", status=Status.BLOCKED))
        await store.add(task("free", blocked_by=("x",)))
        await self.overdue(store, 0, {"one", "none"})
        y = await store.commit(y, replace(y.value, status=Status.FAILED))
        await self.overdue(store, 0, {"one", "two", "none"})
        await store.commit(y, replace(y.value, status=Status.PENDING))
        await self.overdue(store, 0, {"one", "none"})
        held = await the(store, Task, "one")
        await store.commit(held, replace(held.value, status=Status.PENDING, blocked_by=()))
        await self.overdue(store, 0, {"none"})

    async def test_a_dependency_that_is_added_after_its_end_is_overdue_too(self, store: Store) -> None:
        await store.add(task("x", status=Status.COMPLETED))
        held = await store.add(task("a"))
        await store.commit(held, replace(held.value, status=Status.BLOCKED, blocked_by=("x",)))
        await self.overdue(store, 0, {"a"})

    async def test_overdue_are_live_questions_and_verified_tasks_that_nobody_awaits(self, store: Store) -> None:
        live = Question(id="q", text="?", asked_at=1, live=True)
        await store.add(task("live", status=Status.WAITING, question=live))
        await store.add(task("parked", status=Status.WAITING, question=replace(live, live=False)))
        await store.add(task("answered", status=Status.IN_PROGRESS, question=replace(live, answer="yes")))
        await store.add(task("moot", status=Status.VERIFYING, question=replace(live, moot=True)))
        await store.add(task("verified", status=Status.VERIFIED))
        await store.add(task("review", status=Status.VERIFIED, awaiting="review"))
        await self.overdue(store, 0, {"live", "verified"})

    async def test_overdue_stops_at_its_limit(self, store: Store) -> None:
        for n in range(5):
            await store.add(task(f"t{n}", status=Status.VERIFIED))
        await self.overdue(store, 0, {f"t{n}" for n in range(5)})
        assert len(await store.overdue(0, limit=3)) == 3

    # -------------------------------------------------------------------------------------------------- find

    async def found(self, store: Store, where: Filter, wanted: Sequence[str], kind: type[Any] = Task) -> None:
        """A filter finds these, in this order, however they are paged."""

        async def ask(limit: int) -> list[str]:
            page = await store.find(kind, where, Page(limit=limit))
            ids = [value.id for value in page.items]
            while page.after:
                page = await store.find(kind, where, Page(limit=limit, after=page.after))
                ids += [value.id for value in page.items]
                assert 0 < len(page.items) <= limit
            return ids

        for limit in (50, 2, 1):
            await self.expect(store, partial(ask, limit), list(wanted))

    async def test_tasks_are_listed_by_rank_then_age(self, store: Store) -> None:
        for key, rank, status in (("c", 3, "pending"), ("a", 3, "failed"), ("b", -1, "blocked"), ("d", 9, "pending")):
            await store.add(task(key, rank=rank, status=Status(status), project="q" if key == "d" else "p"))
        await self.found(store, Filter(), ["b", "c", "a", "d"])
        await self.found(store, Filter(project="p"), ["b", "c", "a"])
        await self.found(store, Filter(status=(Status.PENDING,)), ["c", "d"])
        await self.found(store, Filter(status=(Status.FAILED, Status.BLOCKED), project="p"), ["b", "a"])
        await self.found(store, Filter(project="nowhere"), [])

    async def test_tasks_are_found_by_each_condition_and_by_all_together(self, store: Store) -> None:
        ask = Question(id="q", text="?", asked_at=1)
        await store.add(task("ab", batch="b1", assigned_to="r1", status=Status.IN_PROGRESS, rank=1))
        await store.add(task("ac", batch="b1", rank=2))
        await store.add(task("bc", batch="b2", rank=3, hold=Hold(kind="person", text="")))
        await store.add(task("bd", status=Status.WAITING, question=ask, rank=4, assigned_to="r1"))
        await store.add(task("be", status=Status.VERIFIED, awaiting="review", rank=5))
        await store.add(task("bf", status=Status.VERIFIED, rank=6))
        await self.found(store, Filter(prefix="b"), ["bc", "bd", "be", "bf"])
        await self.found(store, Filter(prefix="bc"), ["bc"])
        await self.found(store, Filter(prefix="%"), [])
        await self.found(store, Filter(ready=True), ["ac"])
        await self.found(store, Filter(open_question=True), ["bd"])
        await self.found(store, Filter(awaiting=True), ["be"])
        await self.found(store, Filter(batch="b1"), ["ab", "ac"])
        await self.found(store, Filter(assigned_to="r1"), ["ab", "bd"])
        await self.found(store, Filter(assigned_to="r1", batch="b1", project="p", prefix="a"), ["ab"])
        await self.found(store, Filter(ready=True, awaiting=True), [])
        await self.found(store, Filter(task="no condition on tasks"), ["ab", "ac", "bc", "bd", "be", "bf"])

    async def test_a_page_of_nothing_and_a_broken_cursor(self, store: Store) -> None:
        await store.add(task("a"))
        assert not (await store.find(Task, Filter(), Page(limit=0))).items
        assert not (await store.find(Run, Filter(), Page())).items
        with pytest.raises(InvalidInput):
            await store.find(Task, Filter(), Page(after="nonsense"))

    async def test_runs_of_a_task_are_listed_by_number(self, store: Store) -> None:
        for number in (10, 2, 1):
            await store.add(run("a", number))
        await store.add(run("b", project="q"))
        await self.found(store, Filter(task="a"), ["a.1", "a.2", "a.10"], Run)
        await self.found(store, Filter(project="q"), ["b.1"], Run)
        await self.found(store, Filter(prefix="a.1"), ["a.1", "a.10"], Run)
        await self.found(store, Filter(status=(Status.FAILED,)), ["a.1", "a.2", "a.10", "b.1"], Run)

    async def test_all_else_is_listed_by_id(self, store: Store) -> None:
        ask = Question(id="q", text="?", asked_at=1)
        for key in ("fleet", "agent:b", "agent:a"):
            await store.add(Pause(id=key, question=ask if key == "fleet" else None))
        await store.add(Project(id="p1", name="z"))
        await self.found(store, Filter(), ["agent:a", "agent:b", "fleet"], Pause)
        await self.found(store, Filter(prefix="agent:"), ["agent:a", "agent:b"], Pause)
        await self.found(store, Filter(open_question=True), ["fleet"], Pause)
        await self.found(store, Filter(project="p", task="t", open_question=True), ["p1"], Project)

    # ------------------------------------------------------------------------------------------------ counts

    async def counts(self, store: Store, project: str, **wanted: int) -> None:
        async def ask() -> dict[str, int]:
            found = await store.counts(project)
            assert set(found) == set(Status)
            return {status.value: number for status, number in found.items() if number}

        await self.expect(store, ask, wanted)

    async def test_counts_follow_every_change_and_nothing_else(self, store: Store) -> None:
        await self.counts(store, "")
        held = await store.add(task("a"))
        await store.add(task("b"))
        await store.add(task("c", project="q", status=Status.FAILED))
        await self.counts(store, "", pending=2, failed=1)
        await self.counts(store, "p", pending=2)
        await store.commit(held, replace(held.value, status=Status.ASSIGNED))
        with pytest.raises(Stale):
            await store.commit(held, replace(held.value, status=Status.FAILED))
        await store.add(task("b"))
        await self.counts(store, "", pending=1, assigned=1, failed=1)
        await self.counts(store, "q", failed=1)
        await self.counts(store, "nowhere")

    # ----------------------------------------------------------------------------------------------- engines

    async def test_a_beat_makes_an_engine_and_later_replaces_it(self, store: Store) -> None:
        await store.beat(engine("e2"), 10)
        await store.beat(engine("e1", busy=1), 20)
        assert await store.beat(engine("e2", draining=True), 30) > 1_500_000_000_000
        assert list(await store.engines()) == [
            engine("e1", busy=1, beat_at=20),
            engine("e2", draining=True, beat_at=30),
        ]
        assert (await the(store, Engine, "e1")).value.busy == 1

    async def test_a_retired_engine_is_forgotten_and_its_old_version_commits_nothing(self, store: Store) -> None:
        await store.beat(engine("e1"), 10)
        held = await the(store, Engine, "e1")
        await store.retire("e1")
        await store.retire("nobody")
        assert not await store.engines()
        with pytest.raises(Missing):
            await store.commit(held, replace(held.value, busy=1))
        await store.beat(engine("e1"), 20)
        with pytest.raises(Stale):
            await store.commit(held, replace(held.value, busy=1))

    # ------------------------------------------------------------------------------------------------ waiting

    async def test_the_position_is_that_of_the_newest_fact(self, store: Store) -> None:
        assert not await store.position()
        await store.add(task("a"), [fact(), fact()])
        [_, newest] = await facts_of(store)
        assert await store.position() == newest.position

    async def test_what_is_no_position_is_refused_and_one_from_elsewhere_is_gone(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.facts("yesterday")
        with pytest.raises(PositionGone):
            await store.facts("4711")

    async def test_a_fact_that_is_there_already_is_not_waited_for(self, store: Store) -> None:
        await store.add(task("a"), [fact()])
        assert await store.changed("", 0)
        assert await store.changed("", 3600)

    async def test_waiting_for_a_fact_ends_with_the_timeout(self, store: Store) -> None:
        await store.add(task("a"), [fact()])
        assert not await store.changed(await store.position(), 0)
        assert not await store.changed(await store.position(), 0.02)

    async def test_whoever_waits_wakes_when_another_handle_states_a_fact(self, store_factory: Factory) -> None:
        woken: list[bool] = []

        async def wait(store: Store) -> None:
            woken.append(await store.changed(before, 3600))

        async with self.handles(store_factory, 2) as (one, other):
            held = await one.add(task("a"), [fact()])
            before = await one.position()
            async with anyio.create_task_group() as group:
                group.start_soon(wait, one)
                group.start_soon(wait, one)
                group.start_soon(wait, other)
                await anyio.wait_all_tasks_blocked()
                await other.commit(await the(other, Task, "a"), held.value, [fact()])
                await settle(other)
            assert woken == [True, True, True]

    # ---------------------------------------------------------------------------------------------- activity

    async def test_activity_is_kept_once_and_in_the_order_of_its_run(self, store: Store) -> None:
        items = [Activity(run="a.1", n=n, at=n, kind="message", data={"text": f"{n}\0"}) for n in range(4)]
        await store.log([items[0], items[2]])
        await store.log([items[1], items[2], items[3], Activity(run="b.1", n=9, at=0, kind="log")])
        await store.log([replace(items[1], kind="log")])
        await store.log([])
        assert list(await store.activity("a.1")) == items
        assert list(await store.activity("a.1", after=1, limit=1)) == [items[2]]
        assert await store.last_activity("a.1") == 3
        assert await store.last_activity("b.1") == 9
        assert await store.last_activity("c.1") == -1

    async def test_without_a_run_the_newest_activity_of_all_is_given_oldest_first(self, store: Store) -> None:
        for n, key in enumerate(("a.1", "b.1", "a.1", "c.1")):
            await store.log([Activity(run=key, n=n, at=1, kind="log")])
        assert [each.n for each in await store.activity(limit=3)] == [1, 2, 3]
        assert not await store.activity(limit=0)

    # ----------------------------------------------------------------------------------------------- similar

    async def test_tasks_with_alike_words_are_found_best_first(self, store: Store) -> None:
        await store.add(task("login", title="Fix the login timeout", description="JWT validation race"))
        await store.add(task("logout", title="Fix the logout button", labels=("frontend",)))
        await store.add(task("docs", title="Write a quickstart"))
        await store.add(task("far", project="q", title="Fix the login timeout"))

        async def ask(text: str, project: str = "p", limit: int = 10) -> list[str]:
            return [key for key, _ in await store.similar(text, project, limit)]

        assert await ask("login timeout fix") == ["login", "logout"]
        assert await ask("frontend") == ["logout"]
        assert await ask("validation race") == ["login"]
        assert set(await ask("login", project="")) == {"login", "far"}
        assert len(await ask("fix", limit=1)) == 1
        assert await ask("nothing alike") == []
        assert await ask('" OR * NEAR( )') == []
        assert await ask("") == []
        scores = [score for _, score in await store.similar("login timeout fix", "p", 10)]
        assert scores == sorted(scores, reverse=True)

    async def test_a_task_is_found_by_its_new_words_and_not_by_its_old_ones(self, store: Store) -> None:
        await store.add(task("other", title="something else"))
        held = await store.add(task("a", title="red"))
        assert [key for key, _ in await store.similar("red", "p", 5)] == ["a"]
        await store.commit(held, replace(held.value, title="green"))
        assert not await store.similar("red", "p", 5)
        assert [key for key, _ in await store.similar("green", "p", 5)] == ["a"]

    # ------------------------------------------------------------------------------------------ purge, backup

    async def test_purged_facts_are_gone_and_reading_behind_them_says_so(self, store: Store) -> None:
        held = await store.add(task("a"), [fact(at=1), fact(at=2), fact(at=9), fact(at=3)])
        [first, second, third, fourth] = await facts_of(store)
        assert (await store.purge(5)).facts == 2
        assert list(await store.facts()) == [third, fourth]
        assert list(await store.facts(second.position)) == [third, fourth]
        with pytest.raises(PositionGone):
            await store.facts(first.position)
        with pytest.raises(PositionGone):
            await store.changed(first.position, 0)
        await store.commit(held, held.value, [fact(at=10)])
        assert len(await facts_of(store, fourth.position)) == 1

    async def test_the_newest_fact_survives_every_purge_so_that_no_position_is_given_twice(self, store: Store) -> None:
        held = await store.add(task("a"), [fact(at=1), fact(at=2)])
        newest = (await facts_of(store))[-1]
        await store.purge(100)
        assert list(await store.facts()) == [newest]
        await store.commit(held, held.value, [fact(at=3)])
        [_, later] = await facts_of(store)
        assert later.position != newest.position

    async def test_purged_activity_leaves_the_last_of_each_run(self, store: Store) -> None:
        await store.log([Activity(run=key, n=n, at=n, kind="log") for key in ("a.1", "b.1") for n in range(4)])
        await store.log([Activity(run="c.1", n=0, at=50, kind="log")])
        assert (await store.purge(3)).activity == 6
        assert [each.n for each in await store.activity("a.1")] == [3]
        assert await store.last_activity("b.1") == 3
        assert (await store.purge(40)).activity == 0
        assert len(await store.activity()) == 3

    async def test_a_backup_is_written_where_it_is_asked_for(self, store: Store, tmp_path: Path) -> None:
        await store.add(task("a", title="kept words"))
        await store.backup(tmp_path / "new" / "copy")
        assert b"kept words" in (tmp_path / "new" / "copy").read_bytes()
