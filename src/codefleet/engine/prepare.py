"""Everything before an agent starts: its workspace, what is set up in it, its folders, its prompt."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from codefleet.core.errors import Failed, NoSpace, NotFound
from codefleet.core.model import Hold, Outcome, Run, Status, Task
from codefleet.engine import artifacts, files, prompt
from codefleet.engine.case import Case
from codefleet.engine.furnish import furnish
from codefleet.engine.parts import Parts
from codefleet.engine.patience import again
from codefleet.engine.prompt import Upstream
from codefleet.ports import Workspace, WorkspaceOrder

FULL_DISK_PAUSE = 30_000
RESUMABLE = frozenset({Outcome.QUESTION, Outcome.INTERRUPTED, Outcome.FENCED, Outcome.REPORTED, Outcome.NO_CHANGE})
"""How a run may have ended whose session the next one goes on with."""


@dataclass(frozen=True, slots=True)
class Prepared:
    text: str
    resume: bool


@dataclass(frozen=True, slots=True)
class Declined:
    hold: Hold


async def prepare(case: Case, task: Task, *, fresh_session: bool = False) -> Prepared | Declined:
    """Make all ready, or say why the run can not start. Doing it again is harmless."""
    try:
        return await again(lambda: _prepare(case, task, fresh_session=fresh_session))
    except NoSpace as error:
        until = case.parts.clock.now() + FULL_DISK_PAUSE
        return Declined(Hold(kind="limit", text=error.message, until=until))
    except (Failed, NotFound) as error:
        return Declined(Hold(kind="setup", text=f"no workspace could be made: {error.message}"))


async def _prepare(case: Case, task: Task, *, fresh_session: bool) -> Prepared | Declined:
    run = case.run_of(task)
    assert run is not None  # noqa: S101  the stage was chosen by it
    other = await rival(case.parts, run) if case.here else ""
    if other:  # of two that took the same folder at once, both give way
        return Declined(behind(other, case.parts.clock.now()))
    upstreams = await _upstreams(case, task)
    before = await earlier(case, task)
    case.workspace = await _place(case, task, run, upstreams, before)
    stamp = case.parts.home.task(case.key) / "setup.json"
    trouble = await furnish(case, case.workspace, stamp)
    if trouble:
        return Declined(Hold(kind="setup", text=trouble.text))
    folder = await anyio.to_thread.run_sync(_folders, case, task)
    if run.session_id and not fresh_session and before is not None and before.session_id == run.session_id:
        edited = before.revision < task.revision
        return Prepared(prompt.resumed(task, run, case.settings, mark=prompt.new_mark(), edited=edited), resume=True)
    return Prepared(_fresh(case, task, run, upstreams, folder, before), resume=False)


async def place(case: Case, task: Task) -> Workspace:
    """The workspace that an engine before us made for this run, as it is."""
    run = case.run_of(task)
    assert run is not None  # noqa: S101  the stage was chosen by it
    return await _place(case, task, run, await _upstreams(case, task), await earlier(case, task))


async def _place(case: Case, task: Task, run: Run, upstreams: Sequence[Task], before: Run | None) -> Workspace:
    workspaces = case.parts.workspaces
    order = WorkspaceOrder(
        repository=case.repository,
        task_id=task.id,
        number=run.number,
        branch=run.branch,
        target=task.target or case.settings.landing.target or (await workspaces.probe(case.repository)).default_target,
        path=Path(run.workspace),
        mode="here" if case.here else "worktree",
        upstreams={one.id: head for one in upstreams if (head := head_of(one))},
        resume=await _dying(case, task) or (before.head if before else ""),
    )
    where = await workspaces.prepare(order)
    if where.git and not case.here:
        await workspaces.exclude(case.repository, ["/.codefleet/run/"])
    return where


async def _dying(case: Case, task: Task) -> str:
    """What an earlier run has left whose processes are not dead yet, as a commit; its own workspace stays untouched."""
    for run in reversed(task.lingering):
        where = workspace_of(case, run)
        if where is not None and where.git and where.path.exists():
            kept = await case.parts.workspaces.salvage(where, task_id=task.id, number=run.number)
            return kept.commit if kept else run.head
    return ""


async def _upstreams(case: Case, task: Task) -> list[Task]:
    found = await case.parts.store.get(Task, task.depends_on)
    return [held.value for held in found]


def head_of(task: Task) -> str:
    """The commit that a completed task brought."""
    if task.status is not Status.COMPLETED or task.evidence is None:
        return ""
    return task.evidence.merge_commit or task.evidence.commit or ""


async def earlier(case: Case, task: Task) -> Run | None:
    """The run of this task before this one, if one is over."""
    keys = [f"{task.id}.{number}" for number in range(case.number - 1, 0, -1)]
    found = await case.parts.store.get(Run, keys)
    return found[0].value if found else None


def resumes(before: Run | None, agent: str, *, can: bool) -> bool:
    """May a next run go on with the session of the one before?"""
    return (
        can and before is not None and bool(before.session_id) and before.agent == agent and before.outcome in RESUMABLE
    )


async def rival(parts: Parts, run: Run) -> str:
    """The task of another run whose agent works, or is not dead yet, in the same folder; there is room for one."""
    for engine in await parts.store.engines():
        for held in await parts.store.get(Task, await parts.store.owned_by(engine.id)):
            if _is_beside(run, held.value):
                return held.value.id
    return ""


def _is_beside(run: Run, task: Task) -> bool:
    known = (*task.lingering, *((task.run,) if task.run else ()))
    return any(not one.ended and one.workspace == run.workspace and one.id != run.id for one in known)


def behind(other: str, now: int) -> Hold:
    """Come again soon; at a random moment, so that two that gave way to each other do not meet again."""
    until = now + random.randint(1000, 3000)  # noqa: S311  no secret
    return Hold(kind="scope", text=f"{other} is at work in the same folder", on=other, until=until)


def _folders(case: Case, task: Task) -> Path:
    """The artifacts, and what the agent needs to know of their form."""
    shared = not task.lingering
    folder = artifacts.prepare(case.parts.home, case.key, case.number, shared=shared)
    files.write(case.beside_agent / "result.schema.json", json.dumps(prompt.RESULT_SCHEMA, indent=1).encode())
    return folder


def _fresh(case: Case, task: Task, run: Run, upstreams: Sequence[Task], folder: Path, before: Run | None) -> str:
    assert case.workspace is not None  # noqa: S101  made just before
    return prompt.fresh(
        task,
        run,
        case.settings,
        workspace=case.workspace,
        upstreams=[_told(one, case.workspace) for one in upstreams],
        artifacts=folder,
        schema=case.beside_agent / "result.schema.json",
        attempt=task.attempts + 1,
        mark=prompt.new_mark(),
        before=before,
    )


def _told(upstream: Task, where: Workspace) -> Upstream:
    run = upstream.run
    return Upstream(
        task_id=upstream.id,
        title=upstream.title,
        summary=upstream.result_summary,
        files=tuple(change.path for change in run.files) if run else (),
        next_steps=run.result.next_steps if run and run.result else (),
        conflict=where.conflicts.get(upstream.id, ""),
    )


def workspace_of(case: Case, run: Run) -> Workspace | None:
    """The workspace of a run that an earlier engine made ready."""
    if not run.workspace or not run.started_at:
        return None
    return Workspace(
        path=Path(run.workspace),
        repository=case.repository,
        git=bool(run.base),
        branch=run.branch,
        base=run.base,
        fresh=False,
    )
