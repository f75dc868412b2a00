"""What a reviewer tried on the engine itself: nothing of one task, agent or project takes down the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from codefleet.core.errors import GitError, NoSpace, PositionGone
from codefleet.core.model import Aggregate, Status
from codefleet.core.settings import AgentType, Settings
from codefleet.core.transitions import At, people
from codefleet.engine import artifacts, decide
from codefleet.ports import Child, Filter, Job, Page, Paged, Processes
from codefleet.testing.faults import FaultyStore
from codefleet.testing.fleets import DONE, Configured, Fleet

A = TypeVar("A", bound=Aggregate)
T = TypeVar("T")
WRITE = {"write": "a.txt", "text": "a\n"}
BLOCKED = {"result": {"status": "blocked", "summary": "May I?"}}


class Overtaken(FaultyStore):
    """A store in which somebody is always a little faster: `first` is done before a call, `then` after it."""

    first: Callable[[str], Awaitable[None]] | None = None
    then: Callable[[str], Awaitable[None]] | None = None

    async def _through(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        if self.first is not None:
            await self.first(name)
        done = await call()
        if self.then is not None:
            await self.then(name)
        return done


def overtaken(fleet: Fleet) -> tuple[Fleet, Overtaken]:
    store = Overtaken(fleet.parts.store)
    return replace(fleet, parts=replace(fleet.parts, store=store)), store


@dataclass
class Full:
    """Processes whose disk has no room for the first children of a kind."""

    inner: Processes
    kind: str
    left: int

    async def start(self, spool: Path, job: Job) -> Child:
        if spool.name.endswith(self.kind) and self.left:
            self.left -= 1
            raise NoSpace("the disk of the spools is full")
        return await self.inner.start(spool, job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def test_an_answer_that_is_given_while_the_sweep_reads_it_ends_no_engine(fleet: Fleet) -> None:
    key = await fleet.add("Ask", {**BLOCKED, "on": "run 1"}, {**WRITE, "on": "run 2"}, {**DONE, "on": "run 2"})
    assert await fleet.until_idle()
    waiting = await fleet.task(key)
    assert waiting.question is not None
    answered = replace(waiting.question, answer="Yes", answered_at=0)
    artifacts.write_answer(fleet.parts.home.artifacts(key), answered)

    class Answering(FaultyStore):
        async def find(self, kind: type[A], where: Filter, page: Page) -> Paged[A]:
            found = await super().find(kind, where, page)
            if Status.WAITING in where.status and found.items:
                await decide.change(fleet.parts.store, key, lambda task: people.answer(task, "Yes", At(0, "person")))
            return found

    slower = replace(fleet, parts=replace(fleet.parts, store=Answering(fleet.parts.store)))
    async with slower.working():
        await fleet.until(key, Status.COMPLETED)


async def test_answers_written_by_hand_are_found_however_many_tasks_wait(fleet: Fleet) -> None:
    fleet.configure(poll_interval=0.05)
    key = await fleet.add("Ask", {**BLOCKED, "on": "run 1"}, {**WRITE, "on": "run 2"}, {**DONE, "on": "run 2"})
    assert await fleet.until_idle()
    waiting = await fleet.task(key)
    assert waiting.question is not None
    for n in range(520):
        other = replace(waiting, id=f"w{n:07}", rank=waiting.rank - 1 - n, run=None, runs=0)
        await fleet.parts.store.add(replace(other, question=replace(waiting.question, id=f"q_{other.id}.1")))
    answered = replace(waiting.question, answer="Yes", answered_at=0)
    artifacts.write_answer(fleet.parts.home.artifacts(key), answered)
    async with fleet.working():
        await fleet.until(key, Status.COMPLETED)


async def test_an_agent_that_spoils_our_notes_of_its_run_disturbs_nobody_else(fleet: Fleet) -> None:
    spoil = {
        "run": [
            "sh",
            "-c",
            "d=$CODEFLEET_TASK_DIR/runs/1; while [ ! -e $d/refs.json ]; do sleep 0.01; done; echo no >$d/refs.json",
        ]
    }
    bad = await fleet.add("Spoil", spoil, WRITE, DONE)
    assert await fleet.until_idle()
    good = await fleet.add("Go on", {"write": "b.txt", "text": "b"}, DONE, depends_on=(bad,))
    assert await fleet.until_idle()
    assert [(await fleet.task(key)).status for key in (bad, good)] == [Status.COMPLETED] * 2


async def test_a_driver_that_can_not_be_loaded_holds_its_tasks_and_no_others(fleet: Fleet) -> None:
    known = fleet.configured.settings.agents
    fleet.configure(agents={**known, "lost": AgentType(driver="nowhere.at_all:Agent")})
    lost = await fleet.add("Lost", WRITE, DONE, agent="lost")
    good = await fleet.add("Good", WRITE, DONE)
    assert await fleet.until_idle()
    assert (await fleet.task(good)).status is Status.COMPLETED
    hold = (await fleet.task(lost)).hold
    assert hold is not None
    assert (hold.kind, "nowhere" in hold.text) == ("setup", True)


class Unreadable(Configured):
    async def project(self, repository: Path) -> Settings:
        raise GitError(f"git can not read {repository}: dubious ownership")


async def test_a_repository_that_git_refuses_to_read_holds_its_tasks_in_words(fleet: Fleet) -> None:
    key = await fleet.add("Read it", WRITE, DONE)
    refused = replace(fleet, parts=replace(fleet.parts, configuration=Unreadable(fleet.configured.settings)))
    assert await refused.until_idle()
    hold = (await fleet.task(key)).hold
    assert hold is not None
    assert "dubious ownership" in hold.text


async def test_a_full_disk_under_the_spools_delays_an_agent_and_costs_nothing(fleet: Fleet) -> None:
    full = replace(fleet, parts=replace(fleet.parts, processes=Full(fleet.parts.processes, "-agent", 2)))
    key = await fleet.add("Write", WRITE, DONE)
    assert await full.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.runs, task.interruptions) == (Status.COMPLETED, 1, 0), await fleet.kinds(key)


async def test_a_task_whose_two_dependencies_failed_is_told_of_it_once(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, attempts=1), poll_interval=0.05)
    lost = tuple([await fleet.add(f"Fail {n}", {"exit": 3}) for n in range(2)])
    key = await fleet.add("Wait", WRITE, DONE, depends_on=lost)
    assert not await fleet.until_idle()
    slower, store = overtaken(fleet)
    async with slower.working():
        await fleet.eventually(lambda: _called(store, "overdue", 6))
    kinds = await fleet.kinds(key)
    assert kinds.count("task_held") <= 2, kinds
    for one in lost:
        await fleet.backlog.cancel(one)
    hold = (await fleet.task(key)).hold
    assert hold is not None
    assert "was cancelled" in hold.text


async def _called(store: FaultyStore, name: str, times: int) -> bool:
    return store.calls.count(name) >= times


async def test_an_engine_that_slept_longer_than_history_is_kept_goes_on(fleet: Fleet) -> None:
    class Forgetful(FaultyStore):
        left = 2

        async def changed(self, after: str, timeout: float) -> bool:
            if self.left:
                self.left -= 1
                raise PositionGone(f"the facts behind {after} are not kept any more")
            return await super().changed(after, timeout)

    first = await fleet.add("One", {"ask": "May I?"}, WRITE, DONE)
    forgetful = replace(fleet, parts=replace(fleet.parts, store=Forgetful(fleet.parts.store)))
    async with forgetful.working():
        await fleet.until(first, Status.WAITING)
        await fleet.backlog.answer(first, "Yes")
        await fleet.until(first, Status.COMPLETED)
