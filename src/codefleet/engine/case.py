"""All that is known of one run while an engine looks after it, and the few acts that every stage of it needs."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import anyio

from codefleet.core.errors import NoSpace, StoreUnavailable
from codefleet.core.model import Activity, Fact, Run, Task
from codefleet.core.settings import AgentType, Settings
from codefleet.core.transitions import At, Change
from codefleet.engine import artifacts, decide, environment, scrub
from codefleet.engine.parts import Parts
from codefleet.engine.patience import again
from codefleet.engine.talk import number_of, position
from codefleet.ports import ChildState, ChildStatus, Driver, Job, Workspace

log = logging.getLogger(__name__)

T = TypeVar("T")

GONE = 5.0
"""Seconds that a setup command or gate gets to end when it is not wanted any more."""
MOST_TAIL = 64 << 10
_SPOOL = re.compile(r"\d{2,}-(?:setup|agent|gate)")


@dataclass(kw_only=True)
class Case:
    parts: Parts
    engine: str
    key: str
    number: int
    run_id: str
    repository: Path
    project: str
    """The project's name."""
    settings: Settings
    agent_name: str
    agent: AgentType
    driver: Driver
    heard: Callable[[Sequence[Fact]], None]
    """Told of every fact that was committed here."""
    task: Task | None = None
    """As it was when it was last read or committed here."""
    workspace: Workspace | None = None
    token: str = ""

    # ------------------------------------------------------------------------------------------------- places

    @property
    def spools(self) -> Path:
        return self.parts.home.spools(self.run_id)

    @property
    def folder(self) -> Path:
        """What we keep of this run."""
        return self.parts.home.run(self.key, self.number)

    @property
    def beside_agent(self) -> Path:
        """What we put where the agent may read it: inside its worktree, unless people work there too."""
        where = self.workspace
        return self.folder if where is None or self.here or not where.git else where.path / ".codefleet" / "run"

    @property
    def here(self) -> bool:
        """Does the agent work in the project's own folder?"""
        return self.settings.workspace.mode == "here" or not self.settings.git

    @property
    def artifacts(self) -> Path:
        return artifacts.folder(self.parts.home, self.key, self.number)

    @property
    def tmp(self) -> Path:
        return Path(tempfile.gettempdir()) / f"cf-{self.parts.home_id[:8]}-{self.run_id}"

    @property
    def scrubber(self) -> scrub.Scrubber:
        return scrub.of(self.parts.environ, self.agent.keep, self.agent.env)

    def names(self) -> list[str]:
        """The run's spools so far, in order."""
        found = self.spools.iterdir() if self.spools.is_dir() else ()
        return sorted((one.name for one in found if _SPOOL.fullmatch(one.name)), key=number_of)

    def next_name(self, kind: str) -> str:
        last = self.names()[-1:]
        return f"{number_of(last[0]) + 1 if last else 1:02d}-{kind}"

    # --------------------------------------------------------------------------------------------------- acts

    def at(self, by: str = "") -> At:
        return At(self.parts.clock.now(), by or self.engine)

    async def commit(self, decision: Callable[[Task, At], Change], by: str = "") -> Change:
        """One decision about this run's task, whatever the store's condition."""
        at = self.at(by)
        change = await decide.patiently(
            self.parts.store, self.parts.clock, self.key, lambda task: self._scrubbed(decision(task, at))
        )
        self.task = change.task
        self.heard(change.facts)
        return change

    def _scrubbed(self, change: Change) -> Change:
        hide = self.scrubber
        return replace(change, facts=tuple(replace(fact, data=hide.data(fact.data)) for fact in change.facts))

    async def patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do something that a full disk may hinder, as often as it takes."""
        pause = 1.0
        while True:
            try:
                return await again(act)
            except (NoSpace, StoreUnavailable) as error:
                log.warning("disk_waits", extra={"task_id": self.key, "run": self.run_id, "error": error.message})
                await self.parts.clock.sleep(pause)
                pause = min(pause * 2, 30.0)

    def plain(self, env: Mapping[str, str], git: Mapping[str, str]) -> dict[str, str]:
        """The environment of a setup command or gate."""
        self.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker = environment.marker(self.parts.home_id, self.run_id)
        return environment.plain(self.parts.environ, env=env, git=git, tmp=self.tmp, run=marker)

    async def child(self, kind: str, job: Job) -> tuple[ChildStatus, str]:
        """Run a setup command or gate to its end; its status and the tail of what it printed. Its whole tree is ended
        when nobody waits for it any more."""
        name = self.next_name(kind)
        child = await self.parts.processes.start(self.spools / name, job)
        try:
            status = await child.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await child.stop(GONE)
            raise
        text = await anyio.to_thread.run_sync(output, self.spools / name)
        await self._record(kind, name, job, status, text)
        return status, text

    async def _record(self, kind: str, name: str, job: Job, status: ChildStatus, text: str) -> None:
        data = {"command": " ".join(job.argv[-1:]), "exit_code": status.code, "text": text[-4096:]}
        item = Activity(
            run=self.run_id,
            n=position(name, 0, 0),
            at=self.parts.clock.now(),
            kind=f"{kind}_output",
            data=self.scrubber.data(data),
        )
        try:
            await self.parts.store.log([item])
        except (NoSpace, StoreUnavailable) as error:
            log.warning("activity_waits", extra={"run": self.run_id, "error": error.message})

    async def stop_children(self, *, agents: bool) -> None:
        """End what an earlier engine, or an aborted stage, has left running; with `agents` the agents too."""
        for name in self.names():
            if name.endswith("-agent") and not agents:
                continue
            if self.parts.processes.peek(self.spools / name).state in {ChildState.ABSENT, ChildState.DONE}:
                continue
            child = await self.parts.processes.adopt(self.spools / name)
            if child is not None:
                await child.stop(GONE)

    def run_of(self, task: Task) -> Run | None:
        """This run as the task holds it."""
        known = (*task.lingering, *((task.run,) if task.run else ()))
        return next((run for run in known if run.number == self.number), None)

    def sweep_tmp(self) -> None:
        shutil.rmtree(self.tmp, ignore_errors=True)


def output(spool: Path, names: Sequence[str] = ("out", "err")) -> str:
    """The end of what a child printed, errors last."""
    return "".join(_tail(spool / name) for name in names)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MOST_TAIL))
            return file.read(MOST_TAIL).decode("utf-8", "replace")
    except OSError:
        return ""
