"""The trial as tests; `scripts/elastic-trial` runs them on a node that it has started."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import cast

import anyio
import pytest

from codefleet.core.errors import Stale, StoreUnavailable
from codefleet.core.model import Status, Task
from codefleet.ports import Store
from codefleet.testing.elastic import ElasticCore, Http
from codefleet.testing.stores import CoreContract, Factory, fact, opened, settle, task, the


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


class TestElasticCore(CoreContract):
    """The contract's core, and what only a store with outboxes and lost answers has to prove."""

    @pytest.fixture
    async def store_factory(self) -> AsyncIterator[Factory]:
        url, prefix = os.environ["ELASTIC_TRIAL_URL"], f"trial-{uuid.uuid4().hex[:12]}"
        yield lambda: cast("Store", ElasticCore(url, prefix))
        await Http(url)("DELETE", f"/{prefix}-*")

    @pytest.fixture
    async def elastic(self, store_factory: Factory) -> AsyncIterator[ElasticCore]:
        async with opened(store_factory()) as store:
            assert isinstance(store, ElasticCore)
            yield store

    async def test_a_write_whose_answer_is_lost_is_done_once_and_known_to_be(self, elastic: ElasticCore) -> None:
        store = cast("Store", elastic)
        elastic.http.lose = lambda method, _path: method == "PUT"
        held = await store.add(task("a"), [fact("task_created")])
        held = await store.commit(held, replace(held.value, title="new"), [fact("task_edited")])
        elastic.http.lose = lambda _method, _path: False
        assert await the(store, Task, "a") == held
        await settle(store)
        assert [each.kind for each in await store.facts()] == ["task_created", "task_edited"]

    async def test_a_relay_between_two_commits_does_not_make_the_version_stale(self, elastic: ElasticCore) -> None:
        store = cast("Store", elastic)
        held = await store.add(task("a"), [fact("task_created")])
        await settle(store)
        await store.commit(held, replace(held.value, title="new"), [fact("task_edited")])
        with pytest.raises(Stale):
            await store.commit(held, replace(held.value, title="late"))
        await settle(store)
        assert [each.kind for each in await store.facts()] == ["task_created", "task_edited"]

    @pytest.mark.parametrize("write", range(6))
    async def test_a_relay_that_dies_after_any_write_loses_and_doubles_nothing(
        self, elastic: ElasticCore, store_factory: Factory, write: int
    ) -> None:
        store = cast("Store", elastic)
        for key in "abc":
            held = await store.add(task(key), [fact(task_id=key, data={"n": 0})])
            await store.commit(held, held.value, [fact(task_id=key, data={"n": 1})])
        writes = count()
        elastic.http.lose = lambda method, _path: method == "PUT" and next(writes) == write
        with suppress(StoreUnavailable):
            await store.relay()
        async with opened(store_factory()) as other:
            held = await the(other, Task, "a")
            await other.commit(held, held.value, [fact(task_id="a", data={"n": 2})])
            await settle(other)
            found = [(each.task_id, each.data["n"]) for each in await other.facts()]
        assert sorted(found) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]
        assert [n for key, n in found if key == "a"] == [0, 1, 2]

    async def test_readiness_may_lag_and_then_a_try_is_wasted_and_no_task_assigned_twice(
        self, store_factory: Factory
    ) -> None:
        won: list[str] = []

        async def claim(store: Store) -> None:
            for key in await store.ready([], 10):
                held = await the(store, Task, key)
                with suppress(Stale):
                    if held.value.status is Status.PENDING:
                        await store.commit(held, replace(held.value, status=Status.ASSIGNED))
                        won.append(key)

        async with self.handles(store_factory, 2) as stores:
            for n in range(10):
                await stores[0].add(task(f"t{n}", rank=n))
            while len(won) < 10:
                async with anyio.create_task_group() as group:
                    for n in range(4):
                        group.start_soon(claim, stores[n % 2])
        assert sorted(won) == [f"t{n}" for n in range(10)]
