"""One task from its claim to its end, on real git and real processes."""

from __future__ import annotations

from codefleet.core.model import Outcome, Status
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
