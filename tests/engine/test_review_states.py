"""What a reviewer tried with people and repositories: words at the worst moment, repositories as they are."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from codefleet.core.errors import AlreadyRunning, NoSpace
from codefleet.core.model import Agent, Outcome, Run, Status
from codefleet.core.settings import AgentType, Gate, WorkspaceSettings
from codefleet.core.transitions.people import Edit
from codefleet.drivers.scripted import Scripted
from codefleet.engine.backlog import Revision
from codefleet.ports import Capabilities, Child, Command, Driver, Filter, Job, Order, Page, Processes
from codefleet.testing.faults import FaultyStore
from codefleet.testing.fleets import DONE, Fleet, git
from codefleet.testing.moments import dies_at

T = TypeVar("T")
WRITE = {"write": "a.txt", "text": "a\n"}
HANG = {"hang": True, "on": "run 1"}


def again(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**step, "on": "run 2"} for step in steps]


async def test_an_answer_given_while_no_engine_lives_reaches_the_agent_that_waits(fleet: Fleet) -> None:
    key = await fleet.add("Ask", {"ask": "May I?"}, WRITE, DONE)
    await dies_at(fleet, "task_waiting")
    await fleet.backlog.answer(key, "Yes")
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.runs, task.attempts) == (Status.COMPLETED, 1, 0), await fleet.kinds(key)


async def test_a_live_question_of_an_engine_that_died_stays_live(fleet: Fleet) -> None:
    key = await fleet.add("Ask", {"ask": "May I?"}, WRITE, DONE)
    await dies_at(fleet, "task_waiting")
    async with fleet.working() as engine:

        async def adopted() -> bool:
            run = (await fleet.task(key)).run
            return run is not None and run.engine == engine.id

        await fleet.eventually(adopted)
        await fleet.backlog.answer(key, "Yes")
        task = await fleet.until(key, Status.COMPLETED)
    assert (task.runs, task.attempts) == (1, 0)


@pytest.mark.parametrize("act", ["cancel and retry", "release", "hold"])
async def test_a_task_that_is_taken_back_from_a_dying_agent_runs_again_and_never_twice_at_once(
    fleet: Fleet, act: str
) -> None:
    stubborn = {"hang": True, "ignore": ["TERM", "INT"], "on": "run 1"}
    key = await fleet.add("Resist", WRITE, stubborn, *again(WRITE, DONE))
    async with fleet.working(slots=2):
        await fleet.until(key, Status.IN_PROGRESS)
        if act == "cancel and retry":
            await fleet.backlog.cancel(key)
            await fleet.backlog.retry(key)
        elif act == "release":
            await fleet.backlog.edit(key, Revision(now=True))
        else:
            await fleet.backlog.edit(key, Revision(hold="not now", now=True))
            await fleet.backlog.edit(key, Revision(unhold=True))
        task = await fleet.until(key, Status.COMPLETED)
    assert (task.runs, task.lingering, task.attempts) == (2, (), 0)
    first = await fleet.run_of(key, 1)
    second = await fleet.run_of(key, 2)
    assert first.ended_at is not None
    assert first.ended_at <= second.created_at
    assert first.outcome in {Outcome.CANCELLED, Outcome.FENCED}


async def test_a_person_who_holds_a_task_that_is_being_made_ready_keeps_it(fleet: Fleet) -> None:
    key = await fleet.add("Hold", WRITE, DONE)
    await dies_at(fleet, "task_assigned")
    await fleet.backlog.edit(key, Revision(hold="wait"))
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.hold and task.hold.kind, task.interruptions) == (Status.PENDING, "person", 0)
    assert (await fleet.run_of(key)).outcome is Outcome.FENCED
    await fleet.backlog.edit(key, Revision(unhold=True))
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_work_on_a_text_that_was_changed_meanwhile_waits_for_a_person(fleet: Fleet) -> None:
    key = await fleet.add("Paint it red", {"ask": "Which wall?"}, WRITE, DONE)
    async with fleet.working():
        await fleet.until(key, Status.WAITING)
        await fleet.backlog.edit(key, Revision(edit=Edit(title="Paint it green")))
        await fleet.backlog.answer(key, "This one")
        task = await fleet.until(key, Status.VERIFIED)
    assert (task.awaiting, task.proven) == ("review", True)


async def test_an_engine_until_idle_ends_before_a_paused_fleet_and_held_tasks(fleet: Fleet) -> None:
    paused = await fleet.add("Paused", WRITE, DONE, agent="scripted")
    held = await fleet.add("Held", WRITE, DONE)
    await fleet.backlog.edit(held, Revision(hold="no"))
    for selector in ("agent:scripted", "fleet"):
        await fleet.backlog.pause(selector, "Sunday")
        assert await fleet.until_idle()
        await fleet.backlog.resume(selector)
    assert [(await fleet.task(key)).runs for key in (paused, held)] == [0, 0]


async def test_a_repository_without_commits_is_worked_on(fleet: Fleet) -> None:
    empty = fleet.repository
    for path in sorted(empty.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    git(empty, "init", "-q", "-b", "main")
    key = await fleet.add("Begin", WRITE, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert task.status is Status.COMPLETED, (task.hold, task.error_message)
    assert git(empty, "show", f"{task.branch_name}:a.txt") == "a"


async def test_a_checkout_without_a_branch_is_no_obstacle(fleet: Fleet) -> None:
    git(fleet.repository, "switch", "-q", "--detach")
    key = await fleet.add("Detached", WRITE, DONE)
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_a_target_that_is_not_there_holds_the_task_in_words_and_a_retry_goes_on(fleet: Fleet) -> None:
    landing = fleet.configured.settings.landing
    fleet.configure(landing=replace(landing, target="release"))
    key = await fleet.add("Where to", WRITE, DONE)
    assert await fleet.until_idle()
    hold = (await fleet.task(key)).hold
    assert hold is not None
    assert (hold.kind, "release" in hold.text) == ("setup", True)
    git(fleet.repository, "branch", "release")
    await fleet.backlog.retry(key)
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_work_in_the_persons_own_checkout_is_proven_and_told_of(fleet: Fleet) -> None:
    fleet.configure(workspace=WorkspaceSettings(mode="here"), gates=(Gate(name="there", command="test -e a.txt"),))
    keys = [await fleet.add(f"Here {n}", {"write": f"{n}.txt", "text": "x"}, WRITE, DONE) for n in range(2)]
    assert await fleet.until_idle(slots=2)
    tasks = [await fleet.task(key) for key in keys]
    assert [(task.status, task.runs) for task in tasks] == [(Status.COMPLETED, 1)] * 2, [
        (task.error_message, task.hold) for task in tasks
    ]
    assert (fleet.repository / "0.txt").exists()
    assert (fleet.repository / "1.txt").exists()


class Yielding(FaultyStore):
    """A store in which others come between any two calls."""

    async def _through(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        await anyio.wait_all_tasks_blocked() if name == "find" else await anyio.lowlevel.checkpoint()
        return await call()


async def test_of_two_engines_of_one_name_that_begin_at_once_one_is_refused(fleet: Fleet) -> None:
    both = replace(fleet, parts=replace(fleet.parts, store=Yielding(fleet.parts.store)))
    engines = [both.engine(1, name="claude-1") for _ in range(2)]
    refused: list[AlreadyRunning] = []

    async def work(n: int) -> None:
        try:
            await engines[n].run()
        except AlreadyRunning as error:
            refused.append(error)
            engines[1 - n].stop(now=True)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for n in range(2):
                group.start_soon(work, n)
    assert len(refused) == 1


async def test_two_engines_that_begin_at_once_never_call_two_agents_the_same(fleet: Fleet) -> None:
    both = replace(fleet, parts=replace(fleet.parts, store=Yielding(fleet.parts.store)))
    async with both.working(2) as one, both.working(2) as other:

        async def begun() -> bool:
            page = await fleet.parts.store.find(Agent, Filter(), Page(limit=10))
            return len(page.items) == 4

        await fleet.eventually(begun)
        assert not set(one.slots) & set(other.slots)


# ------------------------------------------------------------------------------------------------- a live session

LIVELY = """
import json, os, sys
folder = os.environ["CODEFLEET_ARTIFACT_DIR"]
def put(**event): print(json.dumps(event), flush=True)
put(type="session_started", session_id=sys.argv[1])
for line in sys.stdin:
    said = json.loads(line)
    if said.get("bye"): break
    put(type="message_taken", uuid=said["uuid"])
    open("work.txt", "a").write("x")
    if len(open("work.txt").read()) > 1: open("fixed.txt", "w").write("f")
    with open(folder + "/result.json", "w") as file:
        json.dump({"status": "completed", "summary": "done"}, file)
    put(type="turn_ended", ok=True, error="", text="done")
"""


class Lively(Scripted):
    """An agent whose process stays for further messages."""

    name = "lively"
    capabilities = Capabilities(resume=True, live=True, sessions=True)

    def command(self, order: Order) -> Command:
        line = self.encode(order.prompt, order.message_id)
        argv = (sys.executable, "-c", LIVELY, order.session_id)
        return Command(argv=argv, stdin="queue", messages=(line,), uuids=(order.message_id,))

    def encode(self, text: str, uuid: str) -> bytes:
        return _json({"text": text, "uuid": uuid})

    def farewell(self) -> bytes:
        return _json({"bye": True})


def _json(value: Mapping[str, Any]) -> bytes:
    import json

    return json.dumps(value).encode()


class LivelyOnly:
    def driver(self, name: str, agent: AgentType) -> Driver:
        return Lively(agent)


def lively(fleet: Fleet) -> Fleet:
    gate = Gate(name="fixed", command="test -e fixed.txt || (echo 'fixed is missing: GATE'; exit 1)")
    fleet.configure(gates=(gate,), proof=replace(fleet.configured.settings.proof, flaky_reruns=0))
    return replace(fleet, parts=replace(fleet.parts, drivers=LivelyOnly()))


async def _kill(fleet: Fleet, key: str) -> None:
    spool = fleet.parts.home.spools(f"{key}.1") / "01-agent"
    child = await fleet.parts.processes.adopt(spool)
    assert child is not None
    await anyio.run_process(["kill", "-9", str(child.status().pid)])
    with anyio.fail_after(30):
        await child.wait()


async def test_a_live_session_is_told_of_a_red_gate_and_repairs_it(fleet: Fleet) -> None:
    live = lively(fleet)
    key = await live.add("Repair")
    assert await live.until_idle()
    task = await live.task(key)
    assert (task.status, task.rounds, task.runs) == (Status.COMPLETED, 1, 1), await live.kinds(key)
    assert [one.name for one in live.parts.home.spools(f"{key}.1").iterdir() if "agent" in one.name] == ["01-agent"]


async def test_a_live_session_whose_engine_died_before_it_heard_of_a_red_gate_is_told_by_the_next(fleet: Fleet) -> None:
    live = lively(fleet)
    key = await live.add("Repair")
    await dies_at(live, "gates_failed")
    assert await live.until_idle()
    task = await live.task(key)
    assert (task.status, task.rounds, task.runs, task.attempts) == (Status.COMPLETED, 1, 1, 0), await live.kinds(key)


async def test_a_session_that_died_with_its_engine_before_it_heard_of_a_red_gate_goes_on_in_a_new_process(
    fleet: Fleet,
) -> None:
    live = lively(fleet)
    key = await live.add("Repair")
    await dies_at(live, "gates_failed")
    await _kill(live, key)
    assert await live.until_idle()
    task = await live.task(key)
    assert (task.status, task.rounds, task.runs, task.attempts) == (Status.COMPLETED, 1, 1, 0), await live.kinds(key)
    [told] = (fleet.parts.home.run(key, 1) / "told").glob("03-agent.json")
    assert '"resume":true' in told.read_text()


@dataclass
class Unsent:
    """A child whose queue has no room for its first lines."""

    inner: Child
    left: int

    async def send(self, line: bytes) -> None:
        if self.left:
            self.left -= 1
            raise NoSpace("the disk of the spools is full")
        await self.inner.send(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class NoRoomToSpeak:
    inner: Processes

    async def start(self, spool: Path, job: Job) -> Child:
        child = await self.inner.start(spool, job)
        return Unsent(child, 1) if spool.name.endswith("-agent") else child

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def test_a_message_that_finds_no_room_is_given_later_to_the_same_agent(fleet: Fleet) -> None:
    live = lively(fleet)
    full = replace(live, parts=replace(live.parts, processes=NoRoomToSpeak(live.parts.processes)))
    key = await full.add("Repair")
    assert await full.until_idle()
    task = await live.task(key)
    assert (task.status, task.runs, task.interruptions) == (Status.COMPLETED, 1, 0), await live.kinds(key)
    agents = [one.name for one in live.parts.home.spools(f"{key}.1").iterdir() if "agent" in one.name]
    assert agents == ["01-agent"]


async def test_a_run_beside_a_dying_one_of_another_engine_has_its_own_place_and_both_are_on_record(
    fleet: Fleet,
) -> None:
    stubborn = {"hang": True, "ignore": ["TERM", "INT"], "on": "run 1"}
    key = await fleet.add("Resist", {"write": "one.txt", "text": "1", "on": "run 1"}, stubborn, *again(WRITE, DONE))
    async with fleet.working(slots=1):
        task = await fleet.until(key, Status.IN_PROGRESS)
        assert task.run is not None
        written = anyio.Path(task.run.workspace) / "one.txt"
        await fleet.eventually(written.exists)
        async with fleet.working(slots=1):
            await fleet.backlog.edit(key, Revision(now=True))
            task = await fleet.until(key, Status.COMPLETED)

            async def settled() -> bool:
                return not (await fleet.task(key)).lingering and len(await _records(fleet, key)) == 2

            await fleet.eventually(settled)
    task = await fleet.task(key)
    first, second = await _records(fleet, key)
    assert (task.runs, task.attempts, first.outcome) == (2, 0, Outcome.FENCED)
    assert first.workspace != second.workspace
    assert second.branch == f"{first.branch}-2"
    assert git(fleet.repository, "show", f"{second.head}:one.txt") == "1"
    assert git(fleet.repository, "show", f"{task.branch_name}:a.txt") == "a"
    assert git(fleet.repository, "for-each-ref", f"refs/codefleet/salvage/{key}/1")
    assert (fleet.parts.home.artifacts(key) / "result.json").exists()


async def _records(fleet: Fleet, key: str) -> list[Run]:
    page = await fleet.parts.store.find(Run, Filter(task=key), Page(limit=10))
    return list(page.items)


async def test_a_parked_question_whose_worktree_a_person_removed_still_waits_for_its_answer(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, question_live_minutes=0))
    key = await fleet.add("Ask", {"ask": "May I?"}, *again(WRITE, DONE))
    async with fleet.working():
        await fleet.until(key, Status.WAITING)
        task = await fleet.task(key)
        assert task.run is not None
        await anyio.to_thread.run_sync(shutil.rmtree, task.run.workspace, True)

        async def ended() -> bool:
            run = (await fleet.task(key)).run
            return run is not None and run.ended

        await fleet.eventually(ended)
        assert (await fleet.task(key)).status is Status.WAITING
        await fleet.backlog.answer(key, "Yes")
        task = await fleet.until(key, Status.COMPLETED)
    assert (task.runs, task.attempts, task.interruptions) == (2, 0, 0)


async def test_a_failed_dependency_that_is_tried_again_lets_the_rest_go_on(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, attempts=1))
    first = await fleet.add("Fail", {"exit": 3, "on": "run 1"}, *again(WRITE, DONE))
    second = await fleet.add("Wait", {"write": "b.txt", "text": "b"}, DONE, depends_on=(first,))
    assert not await fleet.until_idle()
    hold = (await fleet.task(second)).hold
    assert hold is not None
    assert hold.kind == "upstream"
    await fleet.backlog.retry(first)
    assert (await fleet.task(second)).hold is None
    assert await fleet.until_idle()
    assert (await fleet.task(second)).status is Status.COMPLETED
