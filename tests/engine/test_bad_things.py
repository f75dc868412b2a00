"""What agents, people, disks, clocks and other engines do to a run."""

from __future__ import annotations

import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from codefleet.core.model import Outcome, Project, Run, Status, Task
from codefleet.core.settings import AgentType
from codefleet.ports import Filter, Page, SystemClock
from codefleet.testing.faults import Fault, FaultyStore
from codefleet.testing.fleets import DONE, PROJECT, Fleet, git

WRITE = {"write": "a.txt", "text": "a\n"}


async def test_words_in_the_output_decide_nothing(fleet: Fleet) -> None:
    said = {"say": "Error: line 429: rate limit exceeded, please log in, authentication_error"}
    key = await fleet.add("Talk", said, WRITE, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.runs) == (Status.COMPLETED, 1)


async def test_an_agent_that_floods_is_ended_and_its_work_is_kept(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, max_output=1 << 20, attempts=1))
    key = await fleet.add("Flood", WRITE, {"flood": 50 << 20}, {"hang": True})
    assert not await fleet.until_idle()
    run = await fleet.run_of(key)
    assert run.outcome is Outcome.FLOOD
    assert git(fleet.repository, "show", f"{run.head}:a.txt") == "a"


async def test_what_an_agent_leaves_behind_is_ended_whatever_it_ignores(fleet: Fleet, tmp_path: Path) -> None:
    note = tmp_path / "daemon"
    daemon = ["sh", "-c", f"echo $$ > {note}; trap '' TERM INT HUP; while :; do sleep 1; done"]
    waits = {"run": ["sh", "-c", f"while [ ! -s {note} ]; do sleep 0.01; done"]}
    key = await fleet.add(
        "Leave a daemon", {"spawn": daemon, "setsid": True, "ignore": ["TERM", "INT"]}, waits, WRITE, DONE
    )
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


async def test_an_agent_killed_by_a_signal_counts_an_attempt_with_its_true_exit(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, attempts=1))
    key = await fleet.add("Crash", WRITE, {"signal": "SEGV"})
    assert not await fleet.until_idle()
    run = await fleet.run_of(key)
    assert (run.exit_code, run.exit_known, run.outcome) == (-signal.SIGSEGV, True, Outcome.OWN_ERROR)
    assert git(fleet.repository, "show", f"{run.head}:a.txt") == "a"


async def test_a_worktree_that_a_person_removed_is_named_and_the_task_goes_on_from_its_branch(fleet: Fleet) -> None:
    key = await fleet.add(
        "Lose it", {"run": ["true"]}, {"hang": True, "on": "run 1"}, {**WRITE, "on": "run 2"}, {**DONE, "on": "run 2"}
    )
    async with fleet.working():
        task = await fleet.until(key, Status.IN_PROGRESS)
        assert task.run is not None
        shutil.rmtree(task.run.workspace)
        [name] = [path.name for path in fleet.parts.home.spools(f"{key}.1").iterdir() if path.name.endswith("-agent")]
        child = await fleet.parts.processes.adopt(fleet.parts.home.spools(f"{key}.1") / name)
        assert child is not None
        os.kill(child.status().pid, signal.SIGKILL)
        task = await fleet.until(key, Status.COMPLETED)
    assert (task.attempts, task.runs) == (0, 2)
    reasons = [fact.data.get("reason", "") for fact in await fleet.facts(key) if fact.kind == "run_ended"]
    assert "workspace" in reasons[0]


async def test_a_repository_that_moved_away_holds_the_task_in_words(fleet: Fleet) -> None:
    key = await fleet.add("Nowhere", WRITE, DONE)
    fleet.repository.rename(fleet.repository.with_name("moved"))
    assert await fleet.until_idle()
    hold = (await fleet.task(key)).hold
    assert hold is not None
    assert "not there" in hold.text


async def test_a_person_who_switches_branches_in_the_repository_disturbs_no_run(fleet: Fleet) -> None:
    key = await fleet.add("Work on", {"ask": "May I?"}, WRITE, DONE)
    async with fleet.working():
        await fleet.until(key, Status.WAITING)
        git(fleet.repository, "switch", "-q", "-c", "elsewhere")
        await fleet.backlog.answer(key, "Yes")
        task = await fleet.until(key, Status.COMPLETED)
    assert git(fleet.repository, "branch", "--show-current") == "elsewhere"
    assert git(fleet.repository, "show", f"{task.branch_name}:a.txt") == "a"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_at_any_call_delays_a_run_and_changes_nothing_else(fleet: Fleet, when: str) -> None:
    """Each task meets one failure at another call; `after` is a commit whose acknowledgement was lost."""
    chosen = random.Random(when).sample(range(1, 60), 12)
    for call in chosen:
        store = FaultyStore(
            fleet.parts.store, Fault.parse(f"fail:{when}:{call}:get,add,commit,ready,owned_by,find,log")
        )
        hindered = replace(fleet, parts=replace(fleet.parts, store=store))
        key = await fleet.add(f"Task {call}", WRITE, DONE)
        assert await hindered.until_idle(), call
        task = await fleet.task(key)
        assert (task.status, task.runs, task.attempts) == (Status.COMPLETED, 1, 0), (call, await fleet.kinds(key))
        kinds = await fleet.kinds(key)
        once = [
            kinds.count(kind)
            for kind in ("task_assigned", "task_started", "run_reported", "run_ended", "task_completed")
        ]
        assert once == [1, 1, 1, 1, 1], (call, kinds)


async def test_two_engines_at_once_do_each_task_once(fleet: Fleet) -> None:
    keys = [await fleet.add(f"Task {n}", WRITE, DONE) for n in range(6)]
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(fleet.engine(2, until_idle=True).run)
    for key in keys:
        task = await fleet.task(key)
        assert (task.status, task.runs) == (Status.COMPLETED, 1)
    page = await fleet.parts.store.find(Run, Filter(), Page(limit=50))
    assert len(page.items) == len(keys)


class ShiftedClock(SystemClock):
    """The machine's clock, moved by a person."""

    shift = 0

    def now(self) -> int:
        return super().now() + self.shift


@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
async def test_a_clock_that_jumps_kills_no_healthy_run_and_steals_no_task(fleet: Fleet, jump: int) -> None:
    clock = ShiftedClock()
    jumping = replace(fleet, parts=replace(fleet.parts, clock=clock))
    fleet.configure(limits=replace(fleet.configured.settings.limits, timeout_seconds=600))
    key = await jumping.add("Work through it", {"ask": "Go on?"}, WRITE, DONE)
    async with jumping.working() as first, jumping.working() as second:
        task = await jumping.until(key, Status.WAITING)
        assert task.run is not None
        owner = task.run.engine
        clock.shift = jump
        await anyio.sleep(4 * fleet.configured.settings.poll_interval)  # both engines have swept at the new time
        task = await jumping.task(key)
        assert task.run is not None
        assert (task.run.engine, task.run.ended) == (owner, False)
        assert owner in {first.id, second.id}
        if task.question is not None and task.question.live:
            await jumping.backlog.answer(key, "Yes")
            task = await jumping.until(key, Status.COMPLETED)
            assert (task.runs, task.attempts) == (1, 0)


async def test_two_tasks_in_one_plain_folder_take_turns(fleet: Fleet, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    project = Project(id=PROJECT.replace("1", "2"), name="plain", paths={"here": str(folder)})
    await fleet.parts.store.add(project)
    fleet.configure(git=False, gates=())
    busy = {"run": ["sh", "-c", "test ! -e busy && touch busy && sleep 0.3 && rm busy"]}
    keys = [await _in(fleet, project.id, f"Task {n}", busy, {"write": f"{n}.txt", "text": "x"}) for n in range(3)]
    assert await fleet.until_idle(slots=3)
    tasks = [await fleet.task(key) for key in keys]
    assert [(task.status, task.runs, task.proven) for task in tasks] == [(Status.COMPLETED, 1, False)] * 3
    assert {path.name for path in folder.iterdir()} >= {"0.txt", "1.txt", "2.txt"}


async def _in(fleet: Fleet, project: str, title: str, *steps: dict[str, Any]) -> str:
    key = await fleet.add(title, *steps, DONE)
    [held] = await fleet.parts.store.get(Task, [key])
    await fleet.parts.store.commit(held, replace(held.value, project=project))
    return key


async def test_a_prompt_never_meets_a_shell(fleet: Fleet, tmp_path: Path) -> None:
    stub = AgentType(driver="command", command=("sh", "-c", 'printf %s "$1" > said.txt', "stub", "{prompt}"))
    fleet.configure(agents={"stub": stub, **fleet.configured.settings.agents})
    title = f"users can't login $(touch {tmp_path}/x) `touch {tmp_path}/y` \U0001f525"
    key = await fleet.add(title, agent="stub")
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert task.status is Status.COMPLETED
    assert title in git(fleet.repository, "show", f"{task.branch_name}:said.txt")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


async def test_no_secret_of_an_agent_is_stored_whatever_it_says(fleet: Fleet) -> None:
    key, given = "sk-test-abcdefghijklmnop123456", "correct-horse-battery"
    fleet.configure(agents={"scripted": AgentType(driver="scripted", env={"SERVICE_TOKEN": given})})
    told = {"result": {"status": "completed", "summary": f"used {key} and {given}", "next_steps": [f"revoke {key}"]}}
    task_id = await fleet.add("Leak", {"say": f"{key} {given}"}, WRITE, told)
    assert await fleet.until_idle()
    activity = await fleet.parts.store.activity(f"{task_id}.1")
    stored = repr((await fleet.task(task_id), await fleet.facts(task_id), activity))
    assert key not in stored.replace(repr((await fleet.task(task_id)).description), "")
    assert given not in stored.replace(repr((await fleet.task(task_id)).description), "")


async def test_a_question_that_an_agent_wrote_by_hand_and_left_is_put_to_a_person(fleet: Fleet) -> None:
    text = "## Q: 2026-01-01 10:00\\n\\nShall it be red?\\n"
    asks = {"run": ["sh", "-c", f"printf '{text}' >> \"$CODEFLEET_ARTIFACT_DIR/Q&A.md\""]}
    key = await fleet.add("Ask by hand", asks)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.question and task.question.text, task.attempts) == (Status.WAITING, "Shall it be red?", 0)


async def test_a_guard_that_is_killed_while_its_agent_works_is_replaced_at_once(fleet: Fleet) -> None:
    key = await fleet.add("Outlive the guard", {"ask": "Go on?"}, WRITE, DONE)
    async with fleet.working():
        await fleet.until(key, Status.WAITING)
        spools = fleet.parts.home.spools(f"{key}.1")
        [spool] = [path for path in spools.iterdir() if path.name.endswith("-agent")]
        before = fleet.parts.processes.peek(spool).guard
        os.kill(before, signal.SIGKILL)

        async def replaced() -> bool:
            return fleet.parts.processes.peek(spool).guard not in {0, before}

        await fleet.eventually(replaced)
        await fleet.backlog.answer(key, "Yes")
        task = await fleet.until(key, Status.COMPLETED)
    run = await fleet.run_of(key)
    assert (task.runs, run.exit_code, run.exit_known) == (1, 0, True)


async def test_runs_that_are_over_hold_no_descriptor(fleet: Fleet) -> None:
    keys = [await fleet.add(f"Task {n}", WRITE, DONE) for n in range(2)]
    assert await fleet.until_idle(slots=1)
    first = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  names are enough
    keys += [await fleet.add(f"Task {n}", WRITE, DONE) for n in range(4)]
    assert await fleet.until_idle(slots=1)
    assert {(await fleet.task(key)).status for key in keys} == {Status.COMPLETED}
    assert len(os.listdir("/proc/self/fd")) <= first  # noqa: PTH208
