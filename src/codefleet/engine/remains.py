"""What a run has left: its work, kept as commits, and its result, read as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from codefleet.core.errors import GitError
from codefleet.core.model import Outcome, Result, Task
from codefleet.core.transitions import At, Change, runs
from codefleet.core.transitions.change import fact
from codefleet.core.verdicts import Observed
from codefleet.engine import artifacts
from codefleet.engine.case import Case
from codefleet.engine.talk import Talk
from codefleet.ports import ChangeSet


def result(case: Case) -> Result | None:
    """What the agent says it did, or the question that it wrote down by hand; without secrets."""
    hide, folder = case.scrubber.text, case.artifacts
    said = artifacts.read_result(folder)
    if said is None and (asked := artifacts.asked(folder)):
        said = Result(status="blocked", summary=asked, question=asked)
    if said is None:
        return None
    steps = tuple(hide(step) for step in said.next_steps)
    return replace(said, summary=hide(said.summary), question=hide(said.question), next_steps=steps)


def observed(
    case: Case, task: Task, talk: Talk, changes: ChangeSet | None, *, failed: tuple[Outcome | None, str]
) -> Observed:
    """All that is known when a turn is over."""
    return Observed(
        expects=task.expects,
        failed=failed[0],
        reason=failed[1],
        code_known=talk.child.status().known or not talk.heard_all,
        changed=None if changes is None else not changes.empty,
        result=result(case),
        words=talk.progress.text,
    )


async def settled(case: Case, task: Task) -> ChangeSet | None:
    """What the run produced, as git shows it; None where there is no git."""
    where = case.workspace
    if where is None or not where.git:
        return None
    settle = case.parts.workspaces.settle
    return await case.patiently(lambda: settle(where, task_id=case.key, number=case.number, title=task.title))


async def save(case: Case, *, settle: bool) -> Callable[[Task, At], Change]:
    """Keep what the run has left, as commits on its branch (`settle`) or beside it; what is to be said of that."""
    where = case.workspace
    if where is None or not where.git or not where.path.exists():
        return _nothing
    try:
        if settle and case.task is not None:
            return _committed(case, await settled(case, case.task))
        salvage = case.parts.workspaces.salvage
        kept = await case.patiently(lambda: salvage(where, task_id=case.key, number=case.number))
    except GitError as error:
        text = f"its work could not be saved: {error.message}"
        return lambda task, at: Change(task, (fact(task, "error", at, code="salvage", text=text),))
    if kept is None:
        return _nothing
    about = {"ref": kept.ref, "files": list(kept.files[:50])}
    return lambda task, at: Change(task, (fact(task, "work_salvaged", at, run=case.run_of(task), **about),))


def _committed(case: Case, changes: ChangeSet | None) -> Callable[[Task, At], Change]:
    """Note with the run what it has committed."""
    if changes is None:
        return _nothing
    about: dict[str, Any] = {"head": changes.head, "tree": changes.tree, "files": changes.files}
    return lambda task, at: (
        runs.learn(task, task.epoch, at, **about) if task.run and task.run.number == case.number else Change(task)
    )


def _nothing(task: Task, _at: At) -> Change:
    return Change(task)
