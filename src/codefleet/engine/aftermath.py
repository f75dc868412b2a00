"""What is still to be done when a run is over and its slot is free again: history, views, audit, tidying. All of it can
be done twice, and what a crash leaves undone the next engine does."""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from codefleet.core.drafts import ALPHABET, ID_LENGTH
from codefleet.core.errors import CodeFleetError, GitError
from codefleet.core.layout import Home
from codefleet.core.model import Agent, Run, Status, Task
from codefleet.core.transitions import At, Change
from codefleet.core.transitions.change import fact
from codefleet.engine import artifacts, decide, files, ledger, views
from codefleet.engine.case import Case
from codefleet.engine.claims import Claims, remember
from codefleet.engine.parts import Parts
from codefleet.engine.prepare import workspace_of
from codefleet.ports import Filter, ForeignMove, Page

log = logging.getLogger(__name__)

MOST_ACTIVITY = 20_000
_IDS = re.compile(rf"[{ALPHABET}]{{{ID_LENGTH}}}")


async def after(case: Case, run: Run, agent: Agent) -> None:
    """The run is over. What of this can not be done is said in the log and changes nothing else."""
    task = (await decide.task(case.parts.store, case.key)).value
    await remember(case.parts, run)
    at = At(case.parts.clock.now(), case.engine)
    await ledger.credit(case.parts.store, case.parts.clock, agent, task, run, at)
    for act in (audit, tidy, show):
        await attempt(act, case, task)


async def attempt(act: Callable[[Case, Task], Awaitable[None]], case: Case, task: Task) -> None:
    try:
        await act(case, task)
    except (CodeFleetError, OSError) as error:
        log.warning("aftermath", extra={"task_id": case.key, "run": case.run_id, "error": str(error)})


async def snapshot(case: Case) -> None:
    """Keep all refs as they are while the agent comes up, for the audit when its run is over."""
    if case.workspace is None or not case.workspace.git:
        return
    try:
        refs = await case.parts.workspaces.refs(case.repository)
        files.write(case.folder / "refs.json", json.dumps(dict(refs)).encode())
    except (CodeFleetError, OSError) as error:
        log.warning("no_snapshot", extra={"task_id": case.key, "run": case.run_id, "error": str(error)})


async def audit(case: Case, task: Task) -> None:
    """Tell of refs that moved during the run although it had no business with them."""
    before = artifacts.parse(files.read(case.folder / "refs.json", most=64 << 20))
    run = case.run_of(task) or (await _closed(case))
    if before is None or run is None or not run.branch:
        return
    own = [f"refs/heads/{run.branch}", "refs/codefleet/*"]
    refs = {name: str(commit) for name, commit in before.items()}
    for move in await case.parts.workspaces.audit(case.repository, refs, own):
        if not await _of_the_fleet(case, move.ref):
            await _tell(case, run, move)
    (case.folder / "refs.json").unlink(missing_ok=True)


async def _tell(case: Case, run: Run, move: ForeignMove) -> None:
    before, after = (commit[:12] or "nothing" for commit in (move.before, move.after))
    text = f"{move.ref} moved from {before} to {after} while {run.id} was at work"
    log.warning("foreign_move", extra={"task_id": case.key, "run": run.id, "ref": move.ref})
    await case.commit(
        lambda task, at: Change(task, (fact(task, "error", at, run=run, code="foreign_move", text=text),))
    )


async def _of_the_fleet(case: Case, ref: str) -> bool:
    """Is it the branch of another task, which works at the same time?"""
    found = await case.parts.store.get(Task, _IDS.findall(ref))
    return any(held.value.branch_name and held.value.branch_name in ref for held in found)


async def _closed(case: Case) -> Run | None:
    found = await case.parts.store.get(Run, [case.run_id])
    return found[0].value if found else None


async def tidy(case: Case, task: Task) -> None:
    """Free the workspace of a task that is completed; all else stays until a person cleans up."""
    run = task.run
    if not task.lingering:  # the newest run's notes are the task's, whichever run was the last to end
        newest = run.number if run is not None else case.number
        await anyio.to_thread.run_sync(artifacts.merge_back, case.parts.home, case.key, newest)
    if task.status is not Status.COMPLETED or run is None or not run.ended or case.here:
        return
    where = workspace_of(case, run)
    if where is None or not where.git or not where.path.exists():
        return
    try:
        kept = await case.parts.workspaces.release(where, task_id=task.id)
    except GitError as error:
        kept = error.message
    if kept:
        log.info("workspace_kept", extra={"task_id": task.id, "why": kept})


async def catch_up(claims: Claims) -> None:
    """What engines before us did not come to: worktrees of completed tasks, raw output that is too old."""
    parts = claims.parts
    folders = await anyio.to_thread.run_sync(_worktrees, parts.home)
    for folder in folders:
        for held in await parts.store.get(Task, _IDS.findall(folder.name)[-1:]):
            run = held.value.run
            if run is not None and Path(run.workspace) == folder:
                await attempt(tidy, await claims.case_of(held.value, run), held.value)
    await _remember_all(parts)
    days = parts.configuration.home().keep_spools_days
    old = await anyio.to_thread.run_sync(_old_spools, parts.home, parts.clock.now() / 1000 - days * 86_400)
    for over in await parts.store.get(Run, old):
        await anyio.to_thread.run_sync(shutil.rmtree, parts.home.spools(over.value.id), True)


async def _remember_all(parts: Parts) -> None:
    """Put runs on record whose engine died just when they had ended."""
    names = await anyio.to_thread.run_sync(_old_spools, parts.home, math.inf)
    known = {held.value.id for held in await parts.store.get(Run, names)}
    tasks = {name.partition(".")[0] for name in names if name not in known}
    for held in await parts.store.get(Task, sorted(tasks)):
        if held.value.run is not None and held.value.run.ended:
            await remember(parts, held.value.run)


def _old_spools(home: Home, before: float) -> list[str]:
    """Runs whose raw output nobody has touched since a moment (in seconds)."""
    root, old = home.spools("x").parent, []
    for path in root.iterdir() if root.is_dir() else ():
        with suppress(FileNotFoundError):  # another engine is faster
            old += [path.name] if path.stat().st_mtime < before else []
    return old


def _worktrees(home: Home) -> list[Path]:
    return sorted(path for path in home.worktrees("x").parent.glob("*/*") if path.is_dir() and path.name[0] != ".")


async def show(case: Case, task: Task) -> None:
    """Write the files that people look at."""
    store = case.parts.store
    page = await store.find(Run, Filter(task=task.id), Page(limit=500))
    activity = await store.activity(case.run_id, -1, MOST_ACTIVITY)
    facts = await store.facts("", 10_000, task=task.id)
    await anyio.to_thread.run_sync(views.write, case.parts.home, task, page.items, activity, facts)
    run = next((one for one in page.items if one.id == case.run_id), None)
    if run is not None and run.base and run.head:
        patch = await case.parts.workspaces.diff(case.repository, run.base, run.head)
        views.keep(case.parts.home, task.id, case.number, "diff.patch", patch)
