"""The façade that all surfaces use: one method for each thing that a person can ask of the fleet."""

from __future__ import annotations

import difflib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from codefleet.app import documents, projects, reading, targets
from codefleet.app.answers import Added, Done, Place
from codefleet.app.documents import Document
from codefleet.app.overview import Lookout
from codefleet.app.reading import Stream
from codefleet.app.targets import Target
from codefleet.core import drafts
from codefleet.core.drafts import Draft
from codefleet.core.errors import CodeFleetError, Failed, InvalidInput, NotAllowed, NotFound
from codefleet.core.layout import Home
from codefleet.core.model import ACTIVITY_KINDS, FACT_KINDS, Agent, Pause, Project, Run, Task
from codefleet.core.model import Engine as EngineRecord
from codefleet.core.settings import Settings
from codefleet.engine import decide
from codefleet.engine.backlog import Backlog, Revision
from codefleet.ports import Clock, Filter, Page, Presence, Store, SystemClock, Workspaces

if TYPE_CHECKING:
    from codefleet.config import Configured
    from codefleet.core.transitions.people import Edit
    from codefleet.engine.engine import Engine


@dataclass(frozen=True)
class Fleet:
    """Everything that a surface can ask for. Made by `open_fleet`."""

    home: Home
    store: Store
    environ: Mapping[str, str]
    cwd: Path
    flags: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    host: str = field(default_factory=lambda: os.uname().nodename)
    missing: bool = False
    """There is no fleet in this home yet: everything that is read is empty."""

    @cached_property
    def workspaces(self) -> Workspaces:
        from codefleet.workspaces import GitWorkspaces

        return GitWorkspaces(self.home.path / "quarantine")

    @cached_property
    def configuration(self) -> Configured:
        from codefleet.config import Configured

        return Configured(self.home, self.workspaces, self.environ, self.flags)

    @cached_property
    def presence(self) -> Presence:
        from codefleet.processes.presence import FilePresence

        return FilePresence(self.home)

    @asynccontextmanager
    async def working(
        self, *, slots: int, name: str = "", agent: str = "", workdir: Path | None = None, until_idle: bool = False
    ) -> AsyncIterator[Engine]:
        """An engine, ready to run. Without a name it is the only one of this home and host."""
        from codefleet.app import work

        async with work.engine(
            self, slots=slots, name=name, agent=agent, workdir=workdir, until_idle=until_idle
        ) as engine:
            yield engine

    @property
    def backlog(self) -> Backlog:
        return Backlog(self.store, self.clock, self.home)

    # ------------------------------------------------------------------------------------------------- places

    async def place(self, path: Path | None = None) -> Place:
        """The project of a path, made on first use."""
        repository = await self.workspaces.probe(path or self.cwd)
        settings = await self.configuration.project(repository.path)
        name = settings.project.name or repository.path.name
        project, fresh = await projects.take_in(self.store, self.host, repository.path, name, self.clock.now())
        return Place(repository, project, settings, fresh)

    async def projects(self) -> Mapping[str, str]:
        """The name of each project by its id."""
        return {project.id: project.name for project in await projects.every(self.store)}

    # --------------------------------------------------------------------------------------------- give work

    async def add(self, draft: Draft, path: Path | None = None) -> Added:
        """A task in the project of a path. Nothing is stored when anything of it is refused."""
        plain = drafts.checked(draft)
        plain = replace(plain, depends_on=await self._dependencies(plain.depends_on), cwd=str(path or self.cwd))
        place = await self.place(path)
        _known_agent(plain.agent, place.settings)
        timeout = place.settings.limits.timeout_seconds
        task = await self.backlog.add(place.project.id, plain, timeout_seconds=timeout)
        return Added(task, place, await self.backlog.near(task.title, task.project, task.id))

    async def edit(
        self,
        name: str,
        edit: Edit,
        *,
        depends_on: Sequence[str] | None = None,
        hold: str = "",
        unhold: bool = False,
        now: bool = False,
    ) -> Task:
        """All of it is done, or nothing; `now` interrupts the run that works on it."""
        task = await self.task(name)
        if edit.agent:
            _known_agent(edit.agent, await self._settings(task))
        wanted = None if depends_on is None else await self._dependencies(drafts.words(depends_on, "dependency"))
        revision = Revision(edit=edit, depends_on=wanted, hold=hold, unhold=unhold, now=now)
        return await self.backlog.edit(task.id, revision)

    async def _dependencies(self, names: Iterable[str]) -> tuple[str, ...]:
        """Their ids; one that names nothing, or several things, is refused input."""
        found = []
        for name in names:
            try:
                found.append((await self.task(name)).id)
            except NotFound as error:
                raise InvalidInput(f"there is no task {name!r} to depend on", hint=error.hint) from error
        return tuple(dict.fromkeys(found))

    async def _settings(self, task: Task) -> Settings:
        path = await self._path(task.project)
        return await self.configuration.project(path) if path else self.configuration.home()

    # ------------------------------------------------------------------------------------------------ finding

    async def find(self, name: str) -> Target:
        return await targets.resolve(self.store, name)

    async def task(self, name: str) -> Task:
        """The task that a TARGET is about."""
        target = await self.find(name)
        if not target.task:
            raise InvalidInput(f"{name} is no task: it is {_kind(target)} {target.id}", hint="name a task")
        return (await decide.task(self.store, target.task)).value

    async def tasks(self, where: Filter, limit: int) -> tuple[Sequence[Task], bool]:
        """Tasks by rank, and whether there are more."""
        if limit <= 0:
            return (), False
        found: list[Task] = []
        page = await self.store.find(Task, where, Page(limit=min(limit, 500)))
        found.extend(page.items)
        while page.after and len(found) < limit:
            page = await self.store.find(Task, where, Page(limit=min(limit - len(found), 500), after=page.after))
            found.extend(page.items)
        return found, bool(page.after)

    # ---------------------------------------------------------------------------------------------------- see

    @property
    def lookout(self) -> Lookout:
        """The fleet as it is now."""
        silent = self.configuration.home().stale_after
        return Lookout(self.store, self.clock.now(), silent, self._is_alive)

    def _is_alive(self, engine: EngineRecord) -> bool:
        return engine.host != self.host or self.presence.alive(engine.id)

    async def status(self) -> Document:
        return await self.lookout.status()

    async def counts(self) -> Mapping[str, int]:
        """How many tasks are in each state."""
        return documents.counts(await self.store.counts())

    async def listed(self, where: Filter, limit: int, *, counted: bool = True) -> tuple[list[Document], bool]:
        """Tasks as documents, those with a live run with what it is doing (`live`), and whether there are more."""
        found, more = await self.tasks(where, limit)
        lookout = self.lookout
        return [documents.task(task) | {"live": await lookout.live(task, counted=counted)} for task in found], more

    async def shown(self, more: int) -> list[Document]:
        """The tasks at work, and so many of those that come next, as a live picture wants them."""
        at_work, _ = await self.listed(Filter(status=reading.AT_WORK), 200, counted=False)
        ready, _ = await self.listed(Filter(ready=True), more, counted=False)
        return [*at_work, *ready]

    async def why(self, name: str | None = None) -> Document:
        """What holds a task; without a name, what keeps the fleet from starting anything."""
        if name is None:
            return await self.lookout.idle()
        task = await self.task(name)
        return await self.lookout.why(task, await self._settings(task))

    async def show(self, name: str) -> Document:
        """Everything about one thing; `what` says what it is."""
        target = await self.find(name)
        if target.kind == "task":
            return await self._show_task(target.id)
        if target.kind == "agent":
            [held] = await self.store.get(Agent, [target.id])
            return {"what": "agent"} | await self.lookout.member(held.value)
        if target.kind == "pause":
            [pause] = await self.store.get(Pause, [target.id])
            return {"what": "pause", "active": pause.value.active, **documents.pause(pause.value)}
        run = next(run for run in await self.runs(target.task) if run.id == target.id)
        return {"what": "run", "id": run.id, "task_id": run.task_id, **documents.run(run)}

    async def _show_task(self, key: str) -> Document:
        task = (await decide.task(self.store, key)).value
        settings = await self._settings(task)
        return {
            "what": "task",
            **documents.task(task),
            "project_name": (await self.projects()).get(task.project),
            "effective": documents.effective(task, settings),
            "why": (await self.lookout.why(task, settings))["reasons"],
            "runs": [documents.run(run) for run in await self.runs(key)],
        }

    async def runs(self, key: str) -> list[Run]:
        """All runs of a task by number; those that the task still holds in their newest state."""
        task = (await decide.task(self.store, key)).value
        found: dict[int, Run] = {}
        page = Page(limit=500)
        while True:
            paged = await self.store.find(Run, Filter(task=key), page)
            found |= {run.number: run for run in paged.items}
            if not paged.after:
                break
            page = Page(limit=500, after=paged.after)
        found |= {run.number: run for run in (*task.lingering, *((task.run,) if task.run else ()))}
        return [found[number] for number in sorted(found)]

    # --------------------------------------------------------------------------------------------------- read

    async def artifact(self, name: str, what: str) -> str:
        """One artifact of a task, as it stands: log, plan, knowledge, qa, result or diff."""
        task = await self.task(name)
        if what == "log":
            return await reading.log_of(self.store, task.id)
        if what == "result":
            return reading.result_of(task, await self.runs(task.id))
        return await self._diff(task) if what == "diff" else reading.file_of(self.home, task, what)

    async def _diff(self, task: Task) -> str:
        """What its newest run with commits changed; of one under way, what is on its branch."""
        path = await self._path(task.project)
        for run in reversed(await self.runs(task.id)):
            head = run.head or (run.branch if not run.ended else "")
            if path and run.base and head:
                return await self.workspaces.diff(path, run.base, head)
        raise Failed(f"task {task.id} has no change set yet", hint=f"`codefleet why {task.id}` says where it stands")

    async def _path(self, project: str) -> Path | None:
        """Where a project lies on this host, if it does."""
        found = await self.store.get(Project, [project])
        path = found[0].value.paths.get(self.host, "") if found else ""
        return Path(path) if path and await anyio.Path(path).is_dir() else None

    async def stream(self, kinds: Iterable[str], *, name: str = "", activity: bool, after: str = "") -> Stream:
        """The stream of events behind a position: of everything, or of what a TARGET names."""
        wanted = frozenset(kinds)
        if unknown := sorted(wanted - FACT_KINDS - ACTIVITY_KINDS):
            raise InvalidInput(f"there is no kind of event {unknown[0]!r}", hint=_near(unknown[0]))
        target = await self.find(name) if name else Target("", "")
        run = target.id if target.kind == "run" else ""
        return Stream(self.store, task=target.task, run=run, kinds=wanted, activity=activity, after=after)

    async def newest_run(self, name: str) -> str:
        """The run that a TARGET names, or the newest of its task; empty when it had none."""
        target = await self.find(name)
        if target.kind == "run":
            return target.id
        task = await self.task(name)
        return f"{task.id}.{task.runs}" if task.runs else ""

    # ---------------------------------------------------------------------------------------------------- act

    async def cancel(self, names: Iterable[str], *, not_started: bool = False) -> Done:
        """Stop tasks for good; with `not_started` those that work has begun on are left as they are."""
        tasks = [await self.task(name) for name in names]
        chosen = [task for task in tasks if not (not_started and task.started_at)]
        return await _each(chosen, self.backlog.cancel)

    async def retry(self, names: Iterable[str]) -> Done:
        return await _each([await self.task(name) for name in names], self.backlog.retry)

    async def questions(self) -> list[Document]:
        """The open questions, of tasks and of pauses."""
        return await self.lookout.questions()

    async def answer(self, name: str, text: str) -> Document:
        """Answer the open question of a task, or of a pause, which is lifted by any answer."""
        words = drafts.comment(text, "answer")
        target = await self.find(name)
        if target.kind != "pause":
            return documents.task(await self.backlog.answer((await self.task(name)).id, words))
        [held] = await self.store.get(Pause, [target.id])
        if not held.value.active:
            raise NotAllowed(f"{target.id} is not paused", hint="`codefleet answer` lists the open questions")
        return documents.pause(await self.backlog.resume(target.id, words))

    async def awaiting(self) -> list[Document]:
        """What waits to be judged."""
        return [documents.task(task) for task in (await self.tasks(Filter(awaiting=True), 1000))[0]]

    async def approve(self, name: str) -> Task:
        return await self.backlog.approve((await self.task(name)).id)

    async def reject(self, name: str, comments: str) -> Task:
        return await self.backlog.reject((await self.task(name)).id, comments)

    async def pause(self, names: Sequence[str], reason: str) -> list[Document]:
        selectors = [await self.selector(name) for name in names] or ["fleet"]
        return [documents.pause(await self.backlog.pause(selector, reason)) for selector in selectors]

    async def resume(self, names: Sequence[str]) -> list[Document]:
        """Lift pauses; without names the whole fleet's."""
        selectors = [await self.selector(name) for name in names] or ["fleet"]
        return [documents.pause(await self.backlog.resume(selector)) for selector in selectors]

    async def selector(self, name: str) -> str:
        """What a pause is put on: `fleet`, an agent type, `account:NAME`, a project, a task."""
        if name == "fleet" or name.startswith(("agent:", "account:")):
            return name
        if await self.store.get(Pause, [name]):
            return name
        if name in self.configuration.home().agents:
            return f"agent:{name}"
        known = await projects.named(self.store, name.removeprefix("project:"))
        if len(known) == 1:
            return f"project:{known[0].id}"
        target = await self.find(name.removeprefix("task:"))
        return target.id if target.kind == "pause" else f"task:{(await self.task(name.removeprefix('task:'))).id}"


async def _each(tasks: Iterable[Task], act: Callable[[str], Awaitable[Task]]) -> Done:
    """Do it to each; what is refused for one is done for the others all the same."""
    done: list[Task] = []
    refused: list[CodeFleetError] = []
    for task in tasks:
        try:
            done.append(await act(task.id))
        except NotAllowed as error:
            refused.append(error)
    return Done(done, refused)


def _kind(target: Target) -> str:
    return "an agent" if target.kind == "agent" else f"a {target.kind}"


def _known_agent(name: str, settings: Settings) -> None:
    if not name or name in settings.agents or name in settings.agents_awaiting_trust:
        return
    near = difflib.get_close_matches(name, settings.agents, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(settings.agents))}"
    raise InvalidInput(f"there is no agent type {name!r}", hint=hint)


def _near(kind: str) -> str:
    near = difflib.get_close_matches(kind, FACT_KINDS | ACTIVITY_KINDS, 3)
    return (
        f"did you mean {' or '.join(near)}?" if near else "task_created, task_completed, message, tool_call and others"
    )
