"""All of `ports.Store`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from codefleet.core.errors import InvalidInput, Missing, PositionGone, Stale
from codefleet.core.model import (
    Activity,
    Engine,
    Task,
)
from codefleet.ports import Store
from codefleet.testing.stores.lists import ListContract
from codefleet.testing.stores.making import Factory, engine, fact, facts_of, settle, task, the


class StoreContract(ListContract):
    """What every store for use keeps: the core, its lists, and engines, waiting, activity, search, purge, backup."""

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
