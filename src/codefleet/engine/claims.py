"""Which task a free slot takes, and why it may not take another. Whoever finds a task unclaimable stores why."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread

from codefleet.core import naming
from codefleet.core.errors import CodeFleetError, ConfigError, Exists, NoSpace, NotAllowed, StoreError
from codefleet.core.model import Fact, Hold, Lane, Pause, Project, Run, Status, Task
from codefleet.core.settings import AgentType, Settings
from codefleet.core.transitions import At, Change, Event, pauses, rules, runs
from codefleet.core.transitions.table import refusal as refused
from codefleet.engine import decide, files, requests
from codefleet.engine.case import Case
from codefleet.engine.parts import Parts
from codefleet.engine.patience import again
from codefleet.engine.prepare import behind, earlier, resumes, rival
from codefleet.engine.proof import worktree_root
from codefleet.ports import Filter

DISK_PAUSE = 60_000
LOOK_PAUSE = 60_000
"""Milliseconds before settings that can not be read are looked at again."""
NOBODY = AgentType(driver="command", command=("false",))
"""Stands for an agent type that is not there any more: a run of it can only be ended."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a task would run with."""

    repository: Path
    project: str
    settings: Settings
    name: str
    """The agent type."""
    agent: AgentType
    model: str


@dataclass
class Claims:
    """The claiming of one engine."""

    parts: Parts
    engine: str
    heard: Callable[[Sequence[Fact]], None]
    agent: str = ""
    workdir: Path | None = None
    busy: Callable[[str], bool] = lambda _key: False
    """Does a run of this task still end in this engine?"""
    paused: dict[str, Pause] = field(default_factory=dict)
    taking: set[str] = field(default_factory=set)
    """Runs that are assigned, or about to be, and that nobody looks after yet."""

    # -------------------------------------------------------------------------------------------------- lists

    async def refresh(self) -> None:
        """Learn which pauses are in force."""
        self.paused = {one.id: one async for one in decide.every(self.parts.store, Pause, Filter()) if one.active}

    async def candidates(self, limit: int, skip: int) -> Sequence[str]:
        """Tasks that may be taken, best first."""
        if not self.paused and self.workdir is None:
            return await self.parts.store.ready([], limit, skip)
        lanes = [lane for lane in await self.parts.store.lanes() if await self._open(lane)]
        return await self.parts.store.ready(lanes, limit, skip) if lanes else []

    async def _open(self, lane: Lane) -> bool:
        project = await self._project(lane.project)
        if project is None or "fleet" in self.paused or pauses.selector("project", lane.project) in self.paused:
            return False
        path = Path(project.paths.get(self.parts.host, "/nowhere"))
        if self.workdir is not None and path != self.workdir:
            return False
        settings = await self._settings(path)
        name = lane.agent or self._default(settings)
        return not self._pause_of(name, settings.agents.get(name))

    def _pause_of(self, name: str, agent: AgentType | None) -> str:
        """The selector of the pause that keeps this agent type from starting; empty when there is none."""
        account = (agent.account if agent else "") or name
        selectors = (pauses.selector("agent", name), pauses.selector("account", account))
        return next((selector for selector in selectors if selector in self.paused), "")

    def _default(self, settings: Settings) -> str:
        return self.agent or settings.agent.default

    async def _project(self, key: str) -> Project | None:
        found = await self.parts.store.get(Project, [key])
        return found[0].value if found else None

    async def _settings(self, path: Path) -> Settings:
        """What holds at a path; where nothing can be read, nothing is trusted."""
        try:
            return await again(lambda: self.parts.configuration.project(path))
        except CodeFleetError:
            return Settings(trusted=False)

    # ------------------------------------------------------------------------------------------------- claim

    async def take(self, key: str, slot: str) -> Case | None:
        """Assign the task to the slot; None when it is not to be had, with the reason stored where it lasts."""
        task = (await decide.task(self.parts.store, key)).value
        if task.status is not Status.PENDING or task.hold or self.busy(key):
            return None
        chosen = await self._choose(task)
        if isinstance(chosen, Hold):
            await self._hold(key, chosen)
            return None
        own = pauses.selector("task", key)
        pause = self._pause_of(chosen.name, chosen.agent) or (own if own in self.paused else "")
        if pause:
            await self._hold(key, Hold(kind="limit", text=f"{pause} is paused", on=pause))
            return None
        return await self._assign(task, chosen, slot)

    async def _hold(self, key: str, hold: Hold) -> None:
        at = self._at()
        change = await decide.change(self.parts.store, key, lambda now: rules.put_hold(now, hold, at))
        self.heard(change.facts)

    def _at(self) -> At:
        return At(self.parts.clock.now(), self.engine)

    async def _choose(self, task: Task) -> Chosen | Hold:
        project = await self._project(task.project)
        path = Path(project.paths[self.parts.host]) if project and self.parts.host in project.paths else None
        if project is None or path is None or not await anyio.Path(path).is_dir():
            where = f" at {path}" if path else " on this host"
            text = f"its project is not there{where}; run `codefleet init` where it is now, then `codefleet retry {task.id}`"
            return Hold(kind="setup", text=text)
        try:
            settings = await again(lambda: self.parts.configuration.project(path))
        except (NoSpace, StoreError):
            raise
        except CodeFleetError as error:
            until = self.parts.clock.now() + LOOK_PAUSE
            return Hold(kind="setup", text=error.message, on=project.id, until=until)
        if not settings.trusted:
            text = f"what {path} would run here is not trusted; look at it with `codefleet trust {path}`"
            return Hold(kind="trust", text=text, on=project.id)
        short = await anyio.to_thread.run_sync(self._short_of_disk, settings.min_free_disk)
        return short or self._equipped(task, project, path, settings)

    def _short_of_disk(self, least: int) -> Hold | None:
        free = shutil.disk_usage(self.parts.home.path).free
        if free >= least:
            return None
        text = f"the file system of {self.parts.home.path} has {free >> 20} MB free; {least >> 20} MB are wanted"
        return Hold(kind="limit", text=text, until=self.parts.clock.now() + DISK_PAUSE)

    def _equipped(self, task: Task, project: Project, path: Path, settings: Settings) -> Chosen | Hold:
        order = _order(self.parts.home.task(task.id) / "task.json")
        name = order.get("coder") or task.agent or self._default(settings)
        agent = settings.agents.get(name)
        if agent is None:
            known = ", ".join(sorted(settings.agents))
            return Hold(kind="setup", text=f"no agent type {name!r} is configured; there are {known}")
        if refusal := self._refusal(agent):
            return Hold(kind="setup", text=refusal)
        model = order.get("model") or task.model or settings.model_of(name)
        return Chosen(path, project.name, settings, name, agent, model)

    def _refusal(self, agent: AgentType) -> str:
        """Why there is no driver for it; empty when there is one."""
        try:
            self.parts.drivers.driver(agent.driver, agent)
        except ConfigError as error:
            return error.message
        return ""

    async def _assign(self, task: Task, chosen: Chosen, slot: str) -> Case | None:
        """One commit gives the task to the slot; somebody who was first keeps it."""
        if task.run is not None and task.run.ended:
            await remember(self.parts, task.run)
        case = self._case(task.id, task.runs + 1, chosen)
        at = self._at()
        token, digest = requests.new_token()
        run = replace(await self._run(case, task, chosen, slot), token=digest, created_at=at.now)
        other = await rival(self.parts, run) if case.here else ""
        if other:
            await self._hold(task.id, behind(other, at.now))
            return None

        def assigned(now: Task) -> Change:
            if now.runs != task.runs:
                raise refused(now, Event.ASSIGN, because="somebody else was first")
            return runs.assign(now, run, at)

        self.taking.add(case.run_id)
        try:
            change = await decide.patiently(self.parts.store, self.parts.clock, task.id, assigned)
        except NotAllowed:
            self.taking.discard(case.run_id)
            return None
        self.heard(change.facts)
        case.token = token
        return case

    def _case(self, key: str, number: int, chosen: Chosen) -> Case:
        return Case(
            parts=self.parts,
            engine=self.engine,
            key=key,
            number=number,
            run_id=f"{key}.{number}",
            repository=chosen.repository,
            project=chosen.project,
            settings=chosen.settings,
            agent_name=chosen.name,
            agent=chosen.agent,
            driver=self.parts.drivers.driver(chosen.agent.driver, chosen.agent),
            heard=self.heard,
        )

    async def case_of(self, task: Task, run: Run) -> Case:
        """The case of a run that was assigned before, with the settings that hold now."""
        project = await self._project(run.project)
        path = Path(project.paths.get(self.parts.host, "/nowhere")) if project else Path("/nowhere")
        settings = await self._settings(path)
        agent = settings.agents.get(run.agent, NOBODY)
        agent = NOBODY if self._refusal(agent) else agent
        name = project.name if project else run.project
        return self._case(task.id, run.number, Chosen(path, name, settings, run.agent, agent, run.model))

    async def _run(self, case: Case, task: Task, chosen: Chosen, slot: str) -> Run:
        branch = self._branch(case, task, chosen)
        before = await earlier(case, task)
        can = case.driver.capabilities
        place = case.repository if case.here else worktree_root(case) / naming.folder(branch)
        same_place = before is not None and before.workspace == str(place)
        session = before.session_id if before and same_place and resumes(before, chosen.name, can=can.resume) else ""
        return Run(
            id=case.run_id,
            task_id=task.id,
            project=task.project,
            number=case.number,
            epoch=task.epoch + 1,
            engine=self.engine,
            host=self.parts.host,
            agent_id=slot,
            agent=chosen.name,
            model=chosen.model,
            branch="" if case.here else branch,
            workspace=str(place),
            session_id=session or (str(uuid.uuid4()) if can.sessions else ""),
            revision=task.revision,
        )

    def _branch(self, case: Case, task: Task, chosen: Chosen) -> str:
        """The task's branch; another one while the process tree of an earlier run may still write to that."""
        own = task.branch_name or naming.branch(chosen.settings.project.branch, self._words(task, chosen))
        shared = task.open_run is None and not task.lingering
        return own if shared else f"{own}-{case.number}"

    def _words(self, task: Task, chosen: Chosen) -> dict[str, str]:
        today = datetime.fromtimestamp(self.parts.clock.now() / 1000, UTC).strftime("%Y-%m-%d")
        user = naming.slug(self.parts.environ.get("USER") or self.parts.environ.get("LOGNAME") or "", "user")
        agent = naming.slug(chosen.name, "agent")
        return {"agent": agent, "task": naming.slug(task.title), "id": task.id, "user": user, "date": today}


async def remember(parts: Parts, run: Run) -> None:
    """Add a closed run to the history; once."""
    with suppress(Exists):
        await parts.store.add(run)


def _order(path: Path) -> dict[str, str]:
    """What a person or an import wrote beside the task: its agent type and model."""
    try:
        document = json.loads(files.read(path) or b"{}")
    except ValueError:
        return {}
    if not isinstance(document, dict):
        return {}
    return {key: value for key in ("coder", "model") if isinstance(value := document.get(key), str) and value}
