"""What people do to the backlog: add, edit, answer, judge, stop. A service over the store for all surfaces.

Nothing is stored when something is refused. Each change is one decision on one task as it is at that moment.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from codefleet.core import drafts
from codefleet.core.drafts import Draft
from codefleet.core.errors import Exists, InvalidInput, NotAllowed
from codefleet.core.layout import Home
from codefleet.core.model import Complexity, Expects, Pause, Status, Task
from codefleet.core.transitions import At, Change, pauses, people
from codefleet.core.transitions.change import fact
from codefleet.core.transitions.people import Edit, rank_of
from codefleet.engine import artifacts, decide, files, ledger, rules, views
from codefleet.ports import Clock, Store

PERSON = "person"
AT_WORK = (Status.ASSIGNED, Status.IN_PROGRESS, Status.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a person wants changed of a task, in one commit. Absent: as it was."""

    edit: Edit = Edit()
    depends_on: tuple[str, ...] | None = None
    hold: str = ""
    """A reason that it may not start."""
    unhold: bool = False
    now: bool = False
    """Interrupt the run that works on it, so that the next one begins with this."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Everything a person may do to tasks."""

    store: Store
    clock: Clock
    home: Home

    def at(self, by: str = PERSON) -> At:
        return At(self.clock.now(), by)

    # ------------------------------------------------------------------------------------------------- making

    async def add(self, project: str, draft: Draft, *, timeout_seconds: int = 0) -> Task:
        """A new task, blocked while something it depends on is open. Its id is new, its timeout frozen."""
        wanted = drafts.checked(draft)
        upstream = await self._upstream(wanted.depends_on)
        task = self._new(project, wanted, upstream, timeout_seconds)
        task = await self._insert(task)
        await anyio.to_thread.run_sync(views.metadata, self.home, task)
        return await self._settle(task) if task.blocked_by else task

    def _new(self, project: str, draft: Draft, upstream: Sequence[Task], timeout_seconds: int) -> Task:
        now = self.clock.now()
        depends_on = tuple(dict.fromkeys(task.id for task in upstream))
        blocked_by = tuple(key for key in depends_on if key in _unmet(upstream))
        return Task(
            id="",
            project=project,
            title=draft.title,
            description=draft.description,
            status=Status.BLOCKED if blocked_by else Status.PENDING,
            priority=draft.priority,
            labels=draft.labels,
            file_scope=draft.file_scope,
            depends_on=depends_on,
            blocked_by=blocked_by,
            complexity=Complexity(draft.complexity),
            expects=Expects(draft.expects),
            agent=draft.agent,
            model=draft.model,
            cwd=draft.cwd,
            next=draft.first,
            rank=rank_of(now, draft.priority, first=draft.first),
            timeout_seconds=timeout_seconds,
            created_at=now,
            updated_at=now,
        )

    async def _insert(self, task: Task) -> Task:
        """Store it under an id that nobody has."""
        while True:
            named = _named(task, "".join(secrets.choice(drafts.ALPHABET) for _ in range(drafts.ID_LENGTH)))
            made = fact(named, "task_created", self.at(), title=task.title, status=task.status, origin=task.origin)
            try:
                await self.store.add(named, [made])
            except Exists:
                continue
            return named

    async def _settle(self, task: Task) -> Task:
        """What became of its dependencies while it was stored: nobody may have seen that it waits for them."""
        await rules.recheck(self.store, task.id, self.at("rule"))
        return (await decide.task(self.store, task.id)).value

    async def near(self, title: str, project: str, but: str) -> Sequence[Task]:
        """Open tasks with nearly the same title."""
        found = await self.store.similar(title, project, 5)
        tasks = await self.store.get(Task, [key for key, _ in found if key != but])
        return [held.value for held in tasks if _is_open(held.value) and drafts.alike(held.value.title, title)]

    # ----------------------------------------------------------------------------------------------- changing

    async def edit(self, key: str, wanted: Revision) -> Task:
        """All of a revision or nothing of it. A dependency that leads back to the task is refused."""
        revision = replace(wanted, edit=drafts.checked_edit(wanted.edit))
        task = await self._edit(key, revision)
        if revision.edit.agent is not None or revision.edit.model is not None:
            await anyio.to_thread.run_sync(_reorder, self.home.task(key) / "task.json", revision.edit)
        return task

    async def _edit(self, key: str, revision: Revision) -> Task:
        if revision.depends_on is None:
            return await self._decide(key, lambda task: self._revised(task, revision, frozenset()))
        before = (await decide.task(self.store, key)).value.depends_on
        unmet = _unmet(await self._upstream(revision.depends_on))
        await self._refuse_cycle(key, revision.depends_on)
        task = await self._decide(key, lambda task: self._revised(task, revision, unmet))
        try:
            await self._refuse_cycle(key, revision.depends_on)
        except InvalidInput:  # somebody made the other half of the circle at the same time
            await self._take_back(key, before)
            raise
        return await self._settle(task) if task.blocked_by else task

    def _revised(self, task: Task, wanted: Revision, unmet: frozenset[str]) -> Change:
        at, change = self.at(), people.edit(task, wanted.edit, self.at())
        if wanted.depends_on is not None and wanted.depends_on != task.depends_on:
            depends_on = wanted.depends_on
            change = change.then(lambda edited: people.depend(edited, depends_on, unmet, at))
        if wanted.unhold:
            change = change.then(lambda edited: people.unhold(edited, at))
        if wanted.hold:
            change = change.then(lambda edited: people.hold(edited, wanted.hold, at))
        if wanted.now and change.task.status in AT_WORK:
            change = change.then(lambda edited: people.release(edited, "a person changed the task", at))
        return change

    async def _take_back(self, key: str, depends_on: tuple[str, ...]) -> None:
        unmet = _unmet([held.value for held in await self.store.get(Task, depends_on)])
        await self._decide(key, lambda task: people.depend(task, depends_on, unmet, self.at()))

    async def _upstream(self, keys: Sequence[str]) -> Sequence[Task]:
        """The tasks of these ids; one that is not there is refused."""
        found = {held.value.id: held.value for held in await self.store.get(Task, keys)}
        if lost := [key for key in keys if key not in found]:
            raise InvalidInput(f"there is no task {lost[0]} to depend on", hint="`codefleet tasks --all` lists them")
        return list(found.values())

    async def _refuse_cycle(self, key: str, depends_on: tuple[str, ...]) -> None:
        came_from = dict.fromkeys(depends_on, key)
        front: list[str] = list(came_from)
        while front and key not in came_from:
            tasks = [held.value for held in await self.store.get(Task, front)]
            steps = [(upstream, task.id) for task in tasks for upstream in task.depends_on]
            front = [upstream for upstream, _ in steps if upstream not in came_from]
            came_from = dict(steps) | came_from
        if key in came_from:
            raise InvalidInput(
                f"task {key} would wait for itself: {' → '.join(_circle(key, came_from))}",
                hint="leave one of these dependencies out",
            )

    async def lift(self, key: str, kind: str) -> Task:
        """Lift a hold of this kind, and no other."""
        return await self._decide(
            key, lambda task: people.unhold(task, self.at()) if task.hold and task.hold.kind == kind else Change(task)
        )

    async def cancel(self, key: str) -> Task:
        task = await self._decide(key, lambda task: people.cancel(task, self.at()))
        await self._spread(task)
        return task

    async def retry(self, key: str) -> Task:
        """Again, with fresh counters; what waited for it in vain waits in hope."""
        while True:
            before = (await decide.task(self.store, key)).value.depends_on
            unmet = _unmet([held.value for held in await self.store.get(Task, before)])
            try:
                task = await self._decide(key, partial(_retried, before=before, unmet=unmet, at=self.at()))
            except _Moved:
                continue
            await self._spread(task)
            return await self._settle(task) if task.blocked_by else task

    async def answer(self, key: str, text: str) -> Task:
        words = drafts.comment(text, "answer")
        task = await self._decide(key, lambda task: _answered(task, words, self.at()))
        await anyio.to_thread.run_sync(_note_answer, self.home, task)
        return task

    async def approve(self, key: str) -> Task:
        """Believe the work; what depends on it may start."""
        task = await self._decide(key, lambda task: people.accept(task, self.at()))
        await self._spread(task)
        return task

    async def reject(self, key: str, comments: str) -> Task:
        words = drafts.comment(comments, "review")
        return await self._decide(key, lambda task: people.request_changes(task, words, self.at()))

    async def _decide(self, key: str, decision: Callable[[Task], Change]) -> Task:
        return (await decide.change(self.store, key, decision)).task

    async def _spread(self, task: Task) -> None:
        """Let those that wait for this task know how it stands."""
        await rules.unlock(self.store, task.id, self.at("rule"))

    # ------------------------------------------------------------------------------------------------- pauses

    async def pause(self, selector: str, reason: str) -> Pause:
        """No new starts of what the selector names until somebody lifts it."""
        words = drafts.comment(reason, "reason of the pause")
        paused, _ = await ledger.revise(
            self.store, Pause(id=selector), lambda pause: pauses.put(pause, words, self.at())
        )
        return paused

    async def resume(self, selector: str, answer: str = "") -> Pause:
        """New starts again; an answer to the question of the pause is any word of a person."""
        if not await self.store.get(Pause, [selector]):
            return Pause(id=selector)
        resumed, _ = await ledger.revise(
            self.store, Pause(id=selector), lambda pause: pauses.lift(pause, self.at(), answer=answer)
        )
        return resumed


class _Moved(Exception):
    """Its dependencies were changed while they were looked at."""


def _retried(task: Task, *, before: tuple[str, ...], unmet: frozenset[str], at: At) -> Change:
    if task.depends_on != before:
        raise _Moved
    return people.retry(task, unmet, at)


def _answered(task: Task, words: str, at: At) -> Change:
    if task.question is None or not task.question.open:
        raise NotAllowed(
            f"task {task.id} is {task.status.value.replace('_', ' ')} and asks nothing",
            hint="`codefleet answer` without a target lists the open questions",
        )
    return people.answer(task, words, at)


def _note_answer(home: Home, task: Task) -> None:
    """Under the question in `Q&A.md` too, for people and for the next run; the store is the truth."""
    folder = artifacts.folder(home, task.id, task.runs)
    if task.question is not None and folder.is_dir():
        with suppress(OSError):
            artifacts.write_answer(folder, task.question)


def _reorder(path: Path, edit: Edit) -> None:
    """Say in `task.json` too by whom and with which model, because that is read before the run."""
    try:
        order = json.loads(files.read(path) or b"{}")
    except ValueError:
        order = {}
    given = {"coder": edit.agent, "model": edit.model}
    changed = {name: value or None for name, value in given.items() if value is not None}
    files.write(path, json.dumps({**order, **changed}, ensure_ascii=False, indent=2).encode() + b"\n")


def _unmet(tasks: Iterable[Task]) -> frozenset[str]:
    return frozenset(task.id for task in tasks if task.status is not Status.COMPLETED)


def _is_open(task: Task) -> bool:
    return task.status not in {Status.COMPLETED, Status.CANCELLED}


def _named(task: Task, key: str) -> Task:
    return replace(task, id=key)


def _circle(key: str, came_from: dict[str, str]) -> list[str]:
    """The way round, from the task back to itself."""
    way = [key]
    while (before := came_from[way[-1]]) != key:
        way.append(before)
    return [key, *reversed(way[1:]), key]
