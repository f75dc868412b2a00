"""The part of the contract that carries all else: aggregates, facts and readiness."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codefleet.core.errors import Exists, InvalidInput, Missing, Stale, StoreUnavailable
from codefleet.core.model import (
    Fact,
    Hold,
    Lane,
    Project,
    Status,
    Task,
)
from codefleet.ports import Held, Store
from codefleet.testing.stores.making import (
    Factory,
    every_kind,
    fact,
    facts_of,
    follow,
    opened,
    rich_task,
    settle,
    task,
    the,
)


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

    async def test_facts_of_a_task_are_all_that_name_it_whoever_stated_them(self, store: Store) -> None:
        one = await store.add(task("a"), [fact(task_id="a", data={"n": 1}), fact(task_id="b", data={"n": 2})])
        other = await store.add(task("b"), [fact(task_id="a", data={"n": 3}), fact(task_id="b", data={"n": 4})])
        await store.commit(one, one.value)
        one = await the(store, Task, "a")
        one = await store.commit(one, one.value, [fact(), fact(task_id="a", data={"n": 5})])
        await store.add(Project(id="p", name="p"), [fact(task_id="a", data={"n": 6})])
        await store.commit(other, other.value, [fact(task_id="b", data={"n": 7})])
        await store.commit(one, one.value, [fact(task_id="a", data={"n": 8}), fact(task_id="a", data={"n": 9})])
        found = await facts_of(store, task="a")
        assert sorted(each.data["n"] for each in found) == [1, 3, 5, 6, 8, 9]
        assert [each.data["n"] for each in await store.facts(task="b")] == [2, 4, 7]
        assert await store.facts(found[1].position, 3, task="a") == found[2:5]

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
