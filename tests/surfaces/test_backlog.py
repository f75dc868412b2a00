"""The backlog when others act at the same moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codefleet.app import reading
from codefleet.core.drafts import Draft
from codefleet.core.errors import InvalidInput
from codefleet.core.layout import Home
from codefleet.core.model import Activity, Fact, Status, Task
from codefleet.core.transitions import people
from codefleet.core.transitions.people import Edit
from codefleet.engine.backlog import Backlog, Revision
from codefleet.ports import Held, SystemClock
from codefleet.stores.memory import MemoryStore
from codefleet.testing import samples


class Crowded(MemoryStore):
    """A store in which somebody else acts just before our write."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.others: list[Callable[[], Awaitable[None]]] = []

    async def _let_others(self) -> None:
        if self.others:
            await self.others.pop()()

    async def add(self, new: Any, facts: Sequence[Fact] = ()) -> Held[Any]:
        await self._let_others()
        return await super().add(new, facts)

    async def commit(self, held: Held[Any], new: Any, facts: Sequence[Fact] = ()) -> Held[Any]:
        await self._let_others()
        return await super().commit(held, new, facts)


@pytest.fixture
async def store() -> Crowded:
    store = Crowded()
    await store.open()
    return store


@pytest.fixture
def backlog(store: Crowded, tmp_path: Path) -> Backlog:
    return Backlog(store, SystemClock(), Home(tmp_path))


async def _put(store: Crowded, key: str, status: Status) -> None:
    """Another process has brought the task into this state."""
    [held] = await store.get(Task, [key])
    [sample, *_] = samples.every()[status]
    await MemoryStore.commit(store, held, replace(sample, id=key))


@pytest.mark.parametrize("ended", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_a_dependency_that_ends_while_the_task_is_stored_is_noticed(
    store: Crowded, backlog: Backlog, ended: Status
) -> None:
    first = await backlog.add("p1", Draft(title="First"))
    store.others.append(lambda: _put(store, first.id, ended))
    second = await backlog.add("p1", Draft(title="Second", depends_on=(first.id,)))
    if ended is Status.COMPLETED:
        assert (second.status, second.blocked_by) == (Status.PENDING, ())
    else:
        assert second.status is Status.BLOCKED
        assert second.hold is not None
        assert second.hold.on == first.id


async def test_two_who_close_a_circle_from_both_sides_at_once_leave_none(store: Crowded, backlog: Backlog) -> None:
    first = (await backlog.add("p1", Draft(title="First"))).id
    second = (await backlog.add("p1", Draft(title="Second"))).id
    refused: list[str] = []

    async def edit(key: str, upstream: str) -> None:
        try:
            await backlog.edit(key, Revision(depends_on=(upstream,)))
        except InvalidInput:
            refused.append(key)

    store.others.append(lambda: edit(second, first))
    await edit(first, second)
    assert refused
    tasks = {held.value.id: held.value for held in await store.get(Task, [first, second])}
    assert not (tasks[first].depends_on and tasks[second].depends_on)
    assert Status.PENDING in {task.status for task in tasks.values()}


async def test_a_retry_sees_the_dependency_that_was_added_meanwhile(store: Crowded, backlog: Backlog) -> None:
    first = (await backlog.add("p1", Draft(title="First"))).id
    second = (await backlog.add("p1", Draft(title="Second"))).id
    await _put(store, second, Status.FAILED)

    async def depend() -> None:
        [held] = await store.get(Task, [second])
        change = people.depend(held.value, (first,), frozenset({first}), backlog.at())
        await MemoryStore.commit(store, held, change.task)

    store.others.append(depend)
    task = await backlog.retry(second)
    assert (task.status, task.blocked_by) == (Status.BLOCKED, (first,))


async def test_an_edit_and_a_cancel_at_once_have_one_winner_and_lose_nothing(store: Crowded, backlog: Backlog) -> None:
    key = (await backlog.add("p1", Draft(title="First"))).id

    async def cancel() -> None:
        await backlog.cancel(key)

    store.others.append(cancel)
    with pytest.raises(Exception, match="is cancelled and cannot have its text edited"):
        await backlog.edit(key, Revision(edit=Edit(title="Other")))
    [held] = await store.get(Task, [key])
    assert (held.value.status, held.value.title) == (Status.CANCELLED, "First")


async def test_an_id_that_is_taken_is_not_used_twice(
    store: Crowded, backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = iter("a" * 8 + "a" * 8 + "b" * 8)
    monkeypatch.setattr("secrets.choice", lambda _: next(letters))
    first = await backlog.add("p1", Draft(title="First"))
    second = await backlog.add("p1", Draft(title="Second"))
    assert (first.id, second.id) == ("a" * 8, "b" * 8)


async def test_another_agent_chosen_later_stands_in_the_order_too(backlog: Backlog) -> None:
    task = await backlog.add("p1", Draft(title="First", agent="claude", model="opus"))
    await backlog.edit(task.id, Revision(edit=Edit(agent="scripted", model="")))
    order = await anyio.Path(backlog.home.task(task.id) / "task.json").read_text()
    assert '"coder": "scripted"' in order
    assert '"model": null' in order


async def test_a_person_s_word_on_a_pause_that_never_was_makes_none(store: Crowded, backlog: Backlog) -> None:
    pause = await backlog.resume("agent:claude")
    assert not pause.active
    assert not await store.get(type(pause), ["agent:claude"])


class Tardy(MemoryStore):
    """A store that is told of the last words of an agent when its run has ended."""

    late: tuple[Activity, ...] = ()

    async def changed(self, after: str, timeout: float) -> bool:
        await anyio.lowlevel.checkpoint()
        await self.log(self.late)
        return True


async def test_who_follows_a_task_to_its_end_hears_what_is_recorded_behind_it() -> None:
    store = Tardy(SystemClock())
    await store.open()
    await store.add(replace(samples.every()[Status.CANCELLED][0], id="aaaaaaaa", run=None, runs=1))
    first, last = (Activity(run="aaaaaaaa.1", n=n, at=n, kind="message", data={"text": str(n)}) for n in (1, 2))
    await store.log([first])
    store.late = (last,)
    with anyio.fail_after(10):
        heard = [one["data"]["text"] async for one in reading.follow_run(store, "aaaaaaaa", {})]
    assert heard == ["1", "2"]
