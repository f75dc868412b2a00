"""One task from its claim to its end, on real git and real processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio

from codefleet.core.model import Outcome, Pause, Status
from codefleet.core.settings import AgentType, Gate, Setup
from codefleet.testing.fleets import DONE, Fleet, git


async def test_a_task_is_worked_on_in_its_own_worktree_proven_and_completed(fleet: Fleet) -> None:
    key = await fleet.add("Write a file", {"write": "hello.txt", "text": "hello\n"}, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.outcome, task.proven) == (Status.COMPLETED, "accepted", True), await fleet.kinds(key)
    assert git(fleet.repository, "show", f"{task.branch_name}:hello.txt") == "hello"
    assert git(fleet.repository, "status", "--porcelain") == ""
    run = await fleet.run_of(key)
    assert (run.outcome, run.exit_code, run.exit_known) == (Outcome.REPORTED, 0, True)


async def test_dependents_begin_from_a_base_that_holds_what_they_depend_on(fleet: Fleet) -> None:
    first = await fleet.add("One", {"write": "one.txt", "text": "1\n"}, DONE)
    second = await fleet.add("Two", {"write": "two.txt", "text": "2\n"}, DONE)
    third = await fleet.add(
        "Three",
        {"run": ["cat", "one.txt", "two.txt"]},
        {"write": "three.txt", "text": "3\n"},
        DONE,
        depends_on=(first, second),
    )
    assert await fleet.until_idle(slots=3)
    task = await fleet.task(third)
    assert task.status is Status.COMPLETED, task
    assert git(fleet.repository, "ls-tree", "--name-only", task.branch_name).split() == [
        "README.md",
        "one.txt",
        "three.txt",
        "two.txt",
    ]


async def test_an_agent_that_says_done_and_did_nothing_fails_after_its_attempts(fleet: Fleet) -> None:
    key = await fleet.add("Claim it", DONE)
    fleet.configure(limits=replace(fleet.configured.settings.limits, attempts=2))
    assert not await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.attempts, task.runs) == (Status.FAILED, 2, 2)
    assert (await fleet.run_of(key, 2)).outcome is Outcome.OWN_ERROR


async def test_what_is_left_uncommitted_without_a_result_is_salvaged_as_the_result(fleet: Fleet) -> None:
    key = await fleet.add("Just do", {"write": "a.txt", "text": "a\n"}, {"say": "I wrote a file"})
    assert await fleet.until_idle()
    run = await fleet.run_of(key)
    assert run.result is not None
    assert (run.result.salvaged, run.result.summary) == (True, "I wrote a file")


async def test_a_red_gate_goes_back_to_the_same_run_with_its_output(fleet: Fleet) -> None:
    fleet.configure(gates=(Gate(name="exists", command="test -f fixed.txt || (echo fixed.txt is missing; exit 1)"),))
    key = await fleet.add(
        "Forget, then fix",
        {"write": "work.txt", "text": "w\n"},
        {"write": "fixed.txt", "text": "f\n", "on": "round 2"},
        DONE,
    )
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.runs, task.rounds, task.attempts) == (Status.COMPLETED, 1, 1, 0), await fleet.kinds(key)
    assert "fixed.txt is missing" in (fleet.parts.home.run(key, 1) / "round-1.md").read_text()
    assert "gates_failed" in await fleet.kinds(key)


async def test_gates_that_stay_red_fail_the_task_and_count_no_attempt(fleet: Fleet) -> None:
    fleet.configure(
        gates=(Gate(name="never", command="exit 1"),), limits=replace(fleet.configured.settings.limits, rounds=1)
    )
    key = await fleet.add("Hopeless", {"write": "a", "text": "a"}, DONE)
    assert not await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.attempts, task.rounds) == (Status.FAILED, 0, 1)
    assert (await fleet.run_of(key)).outcome is Outcome.GATES_RED


async def test_a_gate_that_is_green_the_second_time_is_marked_flaky(fleet: Fleet, tmp_path: Path) -> None:
    once = tmp_path / "once"
    fleet.configure(gates=(Gate(name="flaky", command=f"test -e {once} || {{ touch {once}; exit 1; }}"),))
    key = await fleet.add("Anything", {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle()
    evidence = (await fleet.task(key)).evidence
    assert evidence is not None
    assert [(gate.name, gate.flaky, gate.exit_code) for gate in evidence.gates] == [("flaky", True, 0)]


async def test_gates_that_cannot_run_blame_nobody_and_go_on_when_they_are_changed(fleet: Fleet) -> None:
    fleet.configure(gates=(Gate(name="absent", command=("no-such-program-here",)),))
    key = await fleet.add("Anything", {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.hold and task.hold.kind, task.attempts) == (Status.VERIFYING, "gates", 0)
    fleet.configure(gates=(Gate(name="present", command="true"),))
    assert await fleet.until_idle()
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_without_gates_work_waits_for_a_review_and_is_called_unproven(fleet: Fleet) -> None:
    fleet.configure(gates=())
    key = await fleet.add("Anything", {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.awaiting, task.proven) == (Status.VERIFIED, "review", False)
    await fleet.backlog.approve(key)
    assert (await fleet.task(key)).status is Status.COMPLETED


async def test_a_parked_question_costs_no_attempt_and_the_next_run_has_the_answer(fleet: Fleet) -> None:
    key = await fleet.add(
        "Ask first",
        {"result": {"status": "blocked", "summary": "I must know", "question": "Red or blue?"}, "on": "run 1"},
        {"write": "colour.txt", "text": "blue\n", "on": "run 2"},
        {**DONE, "on": "run 2"},
    )
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.question and task.question.text, task.attempts) == (Status.WAITING, "Red or blue?", 0)
    await fleet.backlog.answer(key, "Blue")
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.runs, task.attempts) == (Status.COMPLETED, 2, 0)
    assert "Blue" in (fleet.parts.home.run(key, 2) / "prompt.md").read_text()


async def test_a_live_question_is_answered_to_the_same_process(fleet: Fleet) -> None:
    key = await fleet.add("Ask while running", {"ask": "Which name?"}, {"write": "a", "text": "a"}, DONE)
    async with fleet.working():
        task = await fleet.until(key, Status.WAITING)
        assert task.question is not None
        assert task.question.live
        await fleet.backlog.answer(key, "Anna")
        task = await fleet.until(key, Status.COMPLETED)
    assert (task.runs, task.question and task.question.answer) == (1, "Anna")


async def test_a_live_question_parks_when_nobody_answers(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, question_live_minutes=0))
    key = await fleet.add("Ask while running", {"ask": "Which name?"}, {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert task.status is Status.WAITING
    assert task.question is not None
    assert not task.question.live
    assert task.run is not None
    assert task.run.ended


async def test_two_equal_start_failures_pause_the_agent_type_with_one_question_and_cost_no_attempt(
    fleet: Fleet,
) -> None:
    missing = AgentType(driver="command", command=("no-such-agent-at-all",))
    fleet.configure(agents={"missing": missing, **fleet.configured.settings.agents})
    keys = [await fleet.add(f"Task {n}", agent="missing") for n in range(4)]
    other = await fleet.add("Another type", {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle(slots=1)
    [held] = await fleet.parts.store.get(Pause, ["agent:missing"])
    assert held.value.active
    assert held.value.question is not None
    tasks = [await fleet.task(key) for key in keys]
    assert {(task.status, task.attempts) for task in tasks} == {(Status.PENDING, 0)}
    assert sum(task.runs for task in tasks) == 2
    assert (await fleet.task(other)).status is Status.COMPLETED


async def test_a_task_that_is_cancelled_ends_its_agent_and_keeps_its_work(fleet: Fleet) -> None:
    key = await fleet.add("Long", {"write": "half.txt", "text": "half\n"}, {"hang": True})
    async with fleet.working():
        await fleet.until(key, Status.IN_PROGRESS)
        worktree = Path((await fleet.task(key)).run.workspace)  # type: ignore[union-attr]
        await fleet.eventually(lambda: anyio.Path(worktree / "half.txt").exists())
        await fleet.backlog.cancel(key)

        async def ended() -> bool:
            run = (await fleet.task(key)).run
            return run is not None and run.ended

        await fleet.eventually(ended)
    assert "work_salvaged" in await fleet.kinds(key)
    ref = f"refs/codefleet/salvage/{key}/1"
    assert git(fleet.repository, "show", f"{ref}:half.txt") == "half"


async def test_stopping_at_once_puts_the_task_back_and_the_next_engine_goes_on(fleet: Fleet) -> None:
    key = await fleet.add(
        "Long", {"write": "half.txt", "text": "half\n"}, {"hang": True, "on": "run 1"}, {**DONE, "on": "run 2"}
    )
    async with fleet.working() as engine:
        await fleet.until(key, Status.IN_PROGRESS)
        engine.stop(now=True)
    task = await fleet.task(key)
    assert (task.status, task.attempts, task.interruptions) == (Status.PENDING, 0, 0)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.runs) == (Status.COMPLETED, 2), await fleet.kinds(key)


async def test_a_timeout_ends_the_whole_tree_and_counts_an_attempt(fleet: Fleet) -> None:
    fleet.configure(limits=replace(fleet.configured.settings.limits, timeout_seconds=1, attempts=1))
    key = await fleet.add("Hang", {"write": "a", "text": "a"}, {"hang": True})
    assert not await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, (await fleet.run_of(key)).outcome) == (Status.FAILED, Outcome.TIMEOUT)


async def test_a_setup_command_that_fails_holds_the_task_and_says_which(fleet: Fleet) -> None:
    fleet.configure(setup=Setup(commands=("echo no such tool >&2; exit 3",)))
    key = await fleet.add("Anything", DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert (task.status, task.hold and task.hold.kind) == (Status.PENDING, "setup")
    assert task.hold is not None
    assert "no such tool" in task.hold.text


async def test_what_is_not_trusted_holds_the_task_and_runs_nothing(fleet: Fleet, tmp_path: Path) -> None:
    fleet.configure(trusted=False, setup=Setup(commands=(f"touch {tmp_path}/ran",)))
    key = await fleet.add("Anything", DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert task.hold is not None
    assert task.hold.kind == "trust"
    assert not (tmp_path / "ran").exists()


async def test_a_branch_that_moves_without_business_is_told_of_and_those_of_other_tasks_are_not(fleet: Fleet) -> None:
    move = {
        "run": ["git", "-C", str(fleet.repository), "-c", "core.hooksPath=/dev/null", "branch", "-q", "sneaked", "HEAD"]
    }
    sneaky = await fleet.add("Sneak", move, {"write": "a", "text": "a"}, DONE)
    honest = await fleet.add("Honest", {"write": "b", "text": "b"}, DONE)
    assert await fleet.until_idle(slots=2)

    async def told() -> bool:
        return "error" in await fleet.kinds(sneaky)

    await fleet.eventually(told)
    errors = [fact.data["text"] for key in (sneaky, honest) for fact in await fleet.facts(key) if fact.kind == "error"]
    assert all("refs/heads/sneaked" in text for text in errors)


async def test_the_next_engine_drops_raw_output_that_is_too_old_of_runs_that_are_over(fleet: Fleet) -> None:
    key = await fleet.add("Write", {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle()
    spool, unknown = fleet.parts.home.spools(f"{key}.1"), fleet.parts.home.spools("another.1")
    unknown.mkdir()
    for path in (spool, unknown):
        os.utime(path, (0, 0))
    async with fleet.working():
        await fleet.eventually(lambda: _gone(spool))
    assert unknown.exists()


async def _gone(path: Path) -> bool:
    return not await anyio.Path(path).exists()


async def test_the_worktree_of_completed_work_is_freed_and_its_branch_stays(fleet: Fleet) -> None:
    key = await fleet.add("Write", {"write": "a", "text": "a"}, DONE)
    assert await fleet.until_idle()
    task = await fleet.task(key)
    assert task.run is not None
    assert await _gone(Path(task.run.workspace))
    assert git(fleet.repository, "show", f"{task.branch_name}:a") == "a"
