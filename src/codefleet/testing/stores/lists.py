"""What a store lists: hints for rules, and pages for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from codefleet.core.errors import InvalidInput, Stale
from codefleet.core.model import (
    Hold,
    Lane,
    Pause,
    Project,
    Question,
    Run,
    Status,
    Task,
)
from codefleet.ports import Filter, Page, Store
from codefleet.testing.stores.core import CoreContract
from codefleet.testing.stores.making import run, task, the


class ListContract(CoreContract):
    """`lanes waiting_on owned_by overdue find counts`, and the order of `ready` where lists are exact."""

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
