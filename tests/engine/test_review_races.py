"""What a reviewer tried between two steps of a run: others who are faster, engines that end there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from codefleet.core.drafts import Draft
from codefleet.core.errors import StoreUnavailable
from codefleet.core.model import Agent, Aggregate, Fact, Outcome, Pause, Project, Run, Status, Task
from codefleet.core.settings import AgentType, Gate
from codefleet.core.transitions import At, pauses
from codefleet.core.transitions.people import Edit
from codefleet.engine.backlog import Revision
from codefleet.ports import Child, ChildStatus, Held, Job, Processes, SystemClock
from codefleet.testing.faults import FaultyStore
from codefleet.testing.fleets import DONE, PROJECT, Fleet, script
from codefleet.testing.moments import Slow, dies_at, slow

A = TypeVar("A", bound=Aggregate)
T = TypeVar("T")
WRITE = {"write": "a.txt", "text": "a\n"}
BLOCKED = {"result": {"status": "blocked", "summary": "May I?"}}


async def test_the_sweep_takes_no_run_that_is_being_claimed(fleet: Fleet) -> None:
    fleet.configure(poll_interval=0.05)
    key = await fleet.add("Write", WRITE, DONE)
    late, store, moment = slow(fleet, "task_assigned")
    async with late.working():
        await moment.done.wait()
        seen = store.calls.count("owned_by")
        await fleet.eventually(lambda: _called(store, "owned_by", seen + 3))
        moment.go.set()
        await fleet.until(key, Status.COMPLETED)
    task = await fleet.task(key)
    assert (task.runs, task.interruptions) == (1, 0), await fleet.kinds(key)


async def _called(store: FaultyStore, name: str, times: int) -> bool:
    return store.calls.count(name) >= times


async def test_what_a_run_commits_while_somebody_else_changes_its_task_is_heard(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, attempts=1))
    key = await fleet.add("Fail", {"exit": 3})
    late, store, moment = slow(fleet, "task_failed")
    ended: list[bool] = []

    async def work() -> None:
        ended.append(await late.engine(until_idle=True).run())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await moment.done.wait()
            await fleet.backlog.edit(key, Revision(edit=Edit(priority=5)))
            await fleet.eventually(lambda: _looked(store))
            moment.go.set()
    assert ended == [False]


async def _looked(store: Slow) -> bool:
    return store.looked > 0


@dataclass
class Waiting:
    """Processes that hold the caller of one start until it may go on."""

    inner: Processes
    ending: str
    started: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)

    async def start(self, spool: Path, job: Job) -> Child:
        child = await self.inner.start(spool, job)
        if spool.name == self.ending:
            self.started.set()
            await self.go.wait()
        return child

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Watched(FaultyStore):
    """A store in which the watch of a run reads as late as it is told to."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked = anyio.Event()
        self.may = anyio.Event()
        self.has = anyio.Event()

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        watching = "_watch" in (anyio.get_current_task().name or "")
        if watching:
            self.asked.set()
            await self.may.wait()
        found = await super().get(kind, ids)
        if watching:
            self.has.set()
        return found


async def test_news_of_a_stage_that_is_over_do_not_break_off_the_next_one(fleet: Fleet, tmp_path: Path) -> None:
    waits = f"while [ ! -e {tmp_path}/judge ]; do sleep 0.02; done; test -e fixed.txt"
    fleet.configure(
        gates=(Gate(name="waits", command=waits),), proof=replace(fleet.configured.settings.proof, flaky_reruns=0)
    )
    key = await fleet.add("Repair", WRITE, {"write": "fixed.txt", "text": "f", "on": "round 2"}, DONE)
    store, processes = Watched(fleet.parts.store), Waiting(fleet.parts.processes, "03-agent")
    watched = replace(fleet, parts=replace(fleet.parts, store=store, processes=processes))
    async with watched.working():
        await fleet.until(key, Status.VERIFYING)
        await fleet.backlog.edit(key, Revision(edit=Edit(priority=5)))
        with anyio.fail_after(30):
            await store.asked.wait()
            (tmp_path / "judge").touch()
            await processes.started.wait()
            store.may.set()
            await store.has.wait()
            await anyio.wait_all_tasks_blocked()
            processes.go.set()
        await fleet.until(key, Status.COMPLETED)
    agents = [one.name for one in fleet.parts.home.spools(f"{key}.1").iterdir() if one.name.endswith("-agent")]
    assert sorted(agents) == ["01-agent", "03-agent"]


async def test_a_session_is_found_behind_any_number_of_runs_that_could_not_begin(fleet: Fleet) -> None:
    key = await fleet.add("Ask", {**BLOCKED, "on": "run 1"}, {**WRITE, "on": "run 7"}, {**DONE, "on": "run 7"})
    assert await fleet.until_idle()
    [held] = await fleet.parts.store.get(Task, [key])
    await fleet.parts.store.commit(held, replace(held.value, runs=6))
    await fleet.backlog.answer(key, "Yes")
    assert await fleet.until_idle()
    assert (await fleet.run_of(key, 7)).session_id == (await fleet.run_of(key, 1)).session_id != ""


async def test_a_folder_is_not_free_before_the_agent_of_a_cancelled_task_is_dead(fleet: Fleet, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    project = Project(id=PROJECT.replace("1", "2"), name="plain", paths={"here": str(folder)})
    await fleet.parts.store.add(project)
    fleet.configure(git=False, gates=())
    busy = {"spawn": ["sh", "-c", "while :; do date +%N > busy; sleep 0.02; done"]}
    first = await _in(fleet, project.id, "First", busy, {"hang": True, "ignore": ["TERM", "INT"]})
    async with fleet.working(slots=2):
        await fleet.eventually(lambda: _there(folder / "busy"))
        await fleet.backlog.cancel(first)
        alone = {"run": ["sh", "-c", "a=$(cat busy); sleep 0.3; test $a = $(cat busy) || touch clash"]}
        second = await _in(fleet, project.id, "Second", alone)
        await fleet.until(second, Status.COMPLETED)
    assert not (folder / "clash").exists()


async def _in(fleet: Fleet, project: str, title: str, *steps: dict[str, Any]) -> str:
    return (await fleet.backlog.add(project, Draft(title=title, description=script(*steps, DONE)))).id


async def _there(path: Path) -> bool:
    return await anyio.Path(path).exists()


def test_an_agent_that_fails_to_start_with_ever_new_words_is_paused_too() -> None:
    at, pause = At(1, "engine"), Pause(id="agent:claude")
    for n in range(pauses.MOST_FAILURES):
        assert not pause.active
        pause, _ = pauses.strike(pause, f"API error, request {n}", at)
    assert pause.active


async def test_a_session_that_goes_on_is_told_what_a_person_changed_meanwhile(fleet: Fleet) -> None:
    key = await fleet.add("Ask", {**BLOCKED, "on": "run 1"}, {**WRITE, "on": "run 2"}, {**DONE, "on": "run 2"})
    assert await fleet.until_idle()
    await fleet.backlog.edit(key, Revision(edit=Edit(title="Paint it green")))
    await fleet.backlog.answer(key, "Yes")
    assert await fleet.until_idle()
    assert (await fleet.run_of(key, 2)).session_id == (await fleet.run_of(key, 1)).session_id != ""
    assert "Paint it green" in (fleet.parts.home.run(key, 2) / "prompt.md").read_text()


async def test_stopping_at_once_needs_no_store(fleet: Fleet) -> None:
    """The store goes away just when there is something to be told to others."""
    fleet.configure(shutdown_grace=0.3)
    key = await fleet.add("Write", WRITE, DONE)
    away, store, moment = slow(fleet, "task_completed")
    with anyio.fail_after(30):
        async with away.working() as engine:
            await moment.done.wait()
            store.gone = True
            moment.go.set()
            await fleet.eventually(lambda: _called(store, "refused", 3))
            engine.stop(now=True)
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_an_engine_that_never_reached_its_store_can_be_stopped(fleet: Fleet) -> None:
    away, store, _ = slow(fleet, "nothing")
    store.gone = True
    engine = away.engine()

    async def stops() -> None:
        await fleet.eventually(lambda: _called(store, "refused", 2))
        engine.stop(now=True)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(stops)
            with pytest.raises(StoreUnavailable):
                await engine.run()


class Lost:
    """A child whose exit code nobody knows."""

    def __init__(self, inner: Child) -> None:
        self.inner = inner

    async def wait(self) -> ChildStatus:
        return replace(await self.inner.wait(), code=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Losing:
    """Processes that lose the exit code of every gate."""

    inner: Processes

    async def start(self, spool: Path, job: Job) -> Child:
        child = await self.inner.start(spool, job)
        return Lost(child) if spool.name.endswith("-gate") else child

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def test_a_gate_whose_exit_code_is_lost_again_and_again_is_held_and_not_run_for_ever(fleet: Fleet) -> None:
    losing = replace(fleet, parts=replace(fleet.parts, processes=Losing(fleet.parts.processes)))
    key = await fleet.add("Write", WRITE, DONE)
    assert await losing.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.hold and task.hold.kind) == (Status.VERIFYING, "gates")
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_a_run_that_was_parked_says_what_it_committed_before(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, question_live_minutes=0))
    key = await fleet.add("Ask", WRITE, {"ask": "May I?"})
    async with fleet.working():

        async def ended() -> bool:
            run = (await fleet.task(key)).run
            return run is not None and run.ended

        await fleet.eventually(ended)
    run = (await fleet.task(key)).run
    assert run is not None
    assert run.outcome is Outcome.QUESTION
    assert [one.path for one in run.files] == ["a.txt"]


async def test_a_run_that_ended_with_its_engine_is_in_the_history(fleet: Fleet) -> None:
    key = await fleet.add("Write", WRITE, DONE)
    await dies_at(fleet, "task_completed")
    assert not await fleet.parts.store.get(Run, [f"{key}.1"])
    async with fleet.working():
        await fleet.eventually(lambda: _recorded(fleet, f"{key}.1"))


async def _recorded(fleet: Fleet, run: str) -> bool:
    return bool(await fleet.parts.store.get(Run, [run]))


async def test_gates_that_are_not_trusted_any_more_hold_the_work_of_an_engine_that_died(fleet: Fleet) -> None:
    gates = fleet.configured.settings.gates
    key = await fleet.add("Write", WRITE, DONE)
    await dies_at(fleet, "run_reported")
    fleet.configure(trusted=False, gates=())
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.hold and task.hold.kind) == (Status.VERIFYING, "gates")
    fleet.configure(trusted=True, gates=gates)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.proven) == (Status.COMPLETED, True)


async def test_a_run_whose_agent_type_is_gone_is_ended_and_its_task_says_so(fleet: Fleet) -> None:
    known = fleet.configured.settings.agents
    fleet.configure(agents={**known, "other": AgentType(driver="scripted")})
    key = await fleet.add("Hang", WRITE, {"hang": True}, agent="other")
    await dies_at(fleet, "task_started")
    fleet.configure(agents=known)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.hold and task.hold.kind, task.attempts) == (Status.PENDING, "setup", 0), (
        await fleet.kinds(key)
    )


async def test_a_spool_that_goes_away_while_old_ones_are_looked_for_ends_no_engine(fleet: Fleet) -> None:
    root = fleet.parts.home.spools("x").parent
    root.mkdir(parents=True)
    (root / "gone.1").symlink_to(root / "nowhere")
    key = await fleet.add("Write", WRITE, DONE)
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED


@dataclass
class Noting:
    """Processes that note how long each child of an agent may run."""

    inner: Processes
    limits: list[float] = field(default_factory=list)

    async def start(self, spool: Path, job: Job) -> Child:
        if spool.name.endswith("-agent"):
            self.limits.append(job.limit)
        return await self.inner.start(spool, job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Shifted(SystemClock):
    shift = 0

    def now(self) -> int:
        return super().now() + self.shift


async def test_long_gates_take_nothing_of_an_agents_time(fleet: Fleet, tmp_path: Path) -> None:
    waits = f"while [ ! -e {tmp_path}/judge ]; do sleep 0.02; done; test -e fixed.txt"
    fleet.configure(
        gates=(Gate(name="waits", command=waits),),
        proof=replace(fleet.configured.settings.proof, flaky_reruns=0),
        limits=replace(fleet.configured.settings.limits, timeout_seconds=600),
    )
    clock, processes = Shifted(), Noting(fleet.parts.processes)
    later = replace(fleet, parts=replace(fleet.parts, clock=clock, processes=processes))
    key = await fleet.add("Repair", WRITE, {"write": "fixed.txt", "text": "f", "on": "round 2"}, DONE)
    async with later.working():
        await fleet.until(key, Status.VERIFYING)
        clock.shift = 900_000
        (tmp_path / "judge").touch()
        await fleet.until(key, Status.COMPLETED)
    assert processes.limits[0] == 600
    assert processes.limits[1] > 500


async def test_what_a_run_has_used_is_put_on_its_agents_account_once(fleet: Fleet) -> None:
    class Unsure(FaultyStore):
        left = 1

        async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
            done = await super().commit(held, new, facts)
            if isinstance(new, Agent) and new.tasks_completed and self.left:
                self.left -= 1
                raise StoreUnavailable("nobody knows whether it was done")
            return done

    key = await fleet.add("Write", WRITE, {"usage": {"input": 10, "output": 5}}, DONE)
    unsure = replace(fleet, parts=replace(fleet.parts, store=Unsure(fleet.parts.store)))
    assert await unsure.until_idle(slots=1)
    [held] = await fleet.parts.store.get(Agent, ["runner-1"])
    assert (await fleet.task(key)).status is Status.COMPLETED
    assert (held.value.tasks_completed, held.value.total_tokens_used) == (1, 15)
