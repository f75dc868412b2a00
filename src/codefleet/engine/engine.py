"""The process that runs rules and slots: it claims for its slots, looks after its runs, and beats.

One task group. A service that dies takes the engine down loudly; a run that dies becomes an outcome quietly.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

import codefleet
from codefleet.core.errors import (
    AlreadyRunning,
    CodeFleetError,
    NoSpace,
    NotAllowed,
    PositionGone,
    StoreError,
    StoreUnavailable,
)
from codefleet.core.model import Agent, Fact, Outcome, Run, Status, Task
from codefleet.core.model import Engine as Record
from codefleet.core.settings import Settings
from codefleet.core.transitions import At, runs
from codefleet.engine import aftermath, decide, ledger, rules
from codefleet.engine.bell import Bell
from codefleet.engine.case import Case
from codefleet.engine.claims import NOBODY, Claims
from codefleet.engine.execution import Execution
from codefleet.engine.parts import Parts
from codefleet.engine.sweep import Sweep
from codefleet.ports import Filter

log = logging.getLogger(__name__)

ENDINGS = frozenset({"task_completed", "task_failed", "task_cancelled", "task_reopened"})
"""After these, tasks that wait for that one are told."""
TIME_LIFTS = frozenset({"time", "limit", "scope"})
MOST_CRASHES = 3
BEHIND, MOST_BEHIND = 0.05, 2.0
MOST_LOOKED_AT = 400
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0


@dataclass(kw_only=True)
class Running:
    execution: Execution
    case: Case
    slot: str


class Engine:
    def __init__(
        self,
        parts: Parts,
        *,
        slots: int,
        name: str = "",
        agent: str = "",
        workdir: Path | None = None,
        until_idle: bool = False,
    ) -> None:
        self.parts = parts
        self.id = f"e_{secrets.token_hex(6)}"
        self.name = name
        self.failed: set[str] = set()
        """Tasks that have failed since it began and were not reopened."""
        self._size = slots
        self._until_idle = until_idle
        self._slots: list[str] = []
        self._running: dict[str, Running] = {}
        self._crashes: dict[str, int] = {}
        self._ended: set[str] = set()
        self._since = parts.clock.now()
        self._tidying = 0
        """Runs that are looked after, the tidying behind them included."""
        self._draining = False
        self._now = False
        self._bell = Bell()
        self._hurry = Bell()
        self._claims = Claims(
            parts=parts, engine=self.id, heard=self._heard, agent=agent, workdir=workdir, busy=self._is_busy
        )
        self._sweep = Sweep(self._claims, self._is_looked_after, self._take)
        self._group: anyio.abc.TaskGroup | None = None

    # ------------------------------------------------------------------------------------------ from outside

    def stop(self, now: bool) -> None:
        """No new starts; `now`: also interrupt what runs, keep its work and put its tasks back."""
        self._draining = True
        self._now = self._now or now
        if now:
            self._hurry.ring()
        for running in self._running.values():
            running.execution.drain()
            if now:
                running.execution.stop()
        self._bell.ring()

    @property
    def _settings(self) -> Settings:
        """The machine's settings as they are now."""
        return self.parts.configuration.home()

    @property
    def slots(self) -> Sequence[str]:
        """The names of its agents."""
        return tuple(self._slots)

    async def run(self) -> bool:
        """Work until stopped, or until idle; False when a task failed meanwhile."""
        self.parts.presence.enter(self.id)
        try:
            position = await self._patiently(self._enter)
            async with anyio.create_task_group() as group:
                self._group = group
                with anyio.CancelScope() as work:
                    group.start_soon(self._gives_up, work)
                    await self._patiently(self._sweep.everything)
                    for service in (self._beats, self._sweeps, self._says, self._catches_up):
                        group.start_soon(service)
                    group.start_soon(self._listens, position)
                    await self._works()
                with anyio.move_on_after(self._settings.shutdown_grace):
                    await self._all(lambda: not self._tidying)
                group.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(self._settings.shutdown_grace, shield=True):
                await self._leave()
        return not (self._until_idle and self.failed)

    # ----------------------------------------------------------------------------------------- begin and end

    async def _enter(self) -> str:
        """Take names and begin to beat; doing it again is harmless."""
        self._slots = await self._names()
        position = await self.parts.store.position()
        await self._beat()
        at = self._at()
        try:
            for slot in self._slots:
                await ledger.join(self.parts.store, self._agent(slot), at, self.parts.presence.alive)
        except AlreadyRunning:
            if self.name:
                raise
            return await self._enter()  # somebody took the same free name at the same time
        log.info("engine_started", extra={"engine": self.id, "slots": self._size})
        return position

    async def _names(self) -> list[str]:
        """What its agents are called; a name that a living one bears is refused or passed over."""
        taken = await self._taken_names()
        if not self.name:
            free = (f"runner-{number}" for number in range(1, 100_000) if f"runner-{number}" not in taken)
            return [next(free) for _ in range(self._size)]
        wanted = [self.name] if self._size == 1 else [f"{self.name}-{number}" for number in range(1, self._size + 1)]
        for name in wanted:
            if name in taken:
                raise AlreadyRunning(f"an agent named {name} is at work already", hint="choose another --name")
        return wanted

    async def _taken_names(self) -> set[str]:
        alive = {one.id for one in await self.parts.store.engines() if self.parts.presence.alive(one.id)}
        others = alive - {self.id}
        return {agent.id async for agent in decide.every(self.parts.store, Agent, Filter()) if agent.engine in others}

    async def _leave(self) -> None:
        """Say goodbye; runs that are left stay in our name, so that the next engine finds them."""
        try:
            at = self._at()
            for slot in self._slots:
                await ledger.depart(self.parts.store, self._agent(slot), at, "stopped")
            if not await self.parts.store.owned_by(self.id):
                await self.parts.store.retire(self.id)
        except CodeFleetError as error:
            log.warning("leaves_without_goodbye", extra={"engine": self.id, "error": error.message})
        finally:
            self.parts.presence.leave(self.id)
        log.info("engine_stopped", extra={"engine": self.id})

    async def _gives_up(self, work: anyio.CancelScope) -> None:
        """Who is to stop at once waits for nothing any longer than this: what is left is kept by guards."""
        await self._hurry.wait()
        await self.parts.clock.sleep(self._settings.shutdown_grace)
        work.cancel()

    def _agent(self, slot: str) -> Agent:
        name = self._claims.agent or self._settings.agent.default
        return Agent(id=slot, type=name, engine=self.id, host=self.parts.host)

    def _at(self) -> At:
        return At(self.parts.clock.now(), self.id)

    # ---------------------------------------------------------------------------------------------- services

    async def _beats(self) -> None:
        while True:
            await self.parts.clock.sleep(self._settings.heartbeat_interval)
            await self._patiently(self._beat)

    async def _beat(self) -> None:
        record = Record(
            id=self.id,
            host=self.parts.host,
            pid=os.getpid(),
            version=codefleet.__version__,
            slots=self._size,
            name=self.name,
            busy=len(self._running),
            since=self._since,
            draining=self._draining,
        )
        await self.parts.store.beat(record, self.parts.clock.now())

    async def _sweeps(self) -> None:
        while True:
            await self.parts.clock.sleep(self._settings.poll_interval)
            await self._patiently(self._sweep.everything)
            self._bell.ring()

    async def _says(self) -> None:
        """One line of counts in the log now and then."""
        while True:
            await self.parts.clock.sleep(self._settings.log_status_interval)
            counts = await self._patiently(self.parts.store.counts)
            shown = {str(status): number for status, number in counts.items() if number}
            log.info("status", extra={"engine": self.id, "busy": len(self._running), "tasks": shown})

    async def _catches_up(self) -> None:
        """Once a day, what may wait that long."""
        while True:
            await self._patiently(lambda: aftermath.catch_up(self._claims))
            await self.parts.clock.sleep(86_400)

    async def _listens(self, position: str) -> None:
        """React to what others have committed."""
        store = self.parts.store
        while True:
            try:
                if not await self._patiently(lambda after=position: store.changed(after, 60.0)):  # type: ignore[misc]
                    continue
                facts = await self._patiently(lambda after=position: store.facts(after))  # type: ignore[misc]
            except PositionGone:  # it slept for longer than facts are kept: the sweep sees what they did
                position = await self._patiently(store.position)
                continue
            if facts:
                position = facts[-1].position
                await self._others([fact for fact in facts if fact.by != self.id])

    async def _others(self, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        if any(fact.kind in {"paused", "resumed"} for fact in facts):
            await self._patiently(self._sweep.pauses)
        for fact in facts:
            if fact.kind == "task_completed" and fact.task_id and self._group is not None:
                self._group.start_soon(self._tidies, fact.task_id)
        for running in self._running.values():
            if any(fact.task_id == running.case.key for fact in facts):
                running.execution.notice()
        self._heard(facts)

    async def _tidies(self, key: str) -> None:
        """A task that a person accepted leaves a worktree behind."""
        task = (await self._patiently(lambda: decide.task(self.parts.store, key))).value
        if task.run is not None and task.run.ended and not self._is_busy(key):
            case = await self._patiently(lambda: self._claims.case_of(task, task.run))
            await aftermath.attempt(aftermath.tidy, case, task)

    def _heard(self, facts: Sequence[Fact]) -> None:
        """Something was committed, here or elsewhere."""
        for fact in facts:
            if fact.task_id and fact.kind in ENDINGS:
                self._ended.add(fact.task_id)
            if fact.task_id and fact.kind == "task_failed":
                self.failed.add(fact.task_id)
            elif fact.task_id and fact.kind in {"task_reopened", "task_completed"}:
                self.failed.discard(fact.task_id)
        if facts:
            self._bell.ring()

    async def _patiently(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Hold on while the store is out of reach or a disk is full; go on when it is back."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await act()
            except (NoSpace, StoreUnavailable) as error:
                if self._now and self._group is None:  # it has not begun: there is nothing to leave behind
                    raise
                log.warning("engine_waits", extra={"engine": self.id, "error": error.message})
                await self.parts.clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    # ------------------------------------------------------------------------------------------------- slots

    async def _works(self) -> None:
        while True:
            await self._patiently(self._consequences)
            if not self._draining:
                await self._patiently(self._fill)
            if self._draining and not self._running:
                return
            if self._until_idle and not self._draining and await self._patiently(self._has_come_to_rest):
                self.stop(now=False)
                continue
            if self._now:
                await self._all(lambda: not self._running)
                return
            await self._bell.wait()

    async def _all(self, done: Callable[[], bool]) -> None:
        while not done():
            await self._bell.wait()

    async def _consequences(self) -> None:
        """Tell those that wait for a task what became of it."""
        while self._ended:
            key = self._ended.pop()
            try:
                await rules.unlock(self.parts.store, key, self._at())
            except StoreError:
                self._ended.add(key)
                raise

    async def _fill(self) -> None:
        """Give every free slot the best task that it may take."""
        skip = 0
        while (free := self._free()) and skip < MOST_LOOKED_AT:
            keys = await self._claims.candidates(len(free) + 8, skip)
            for key in keys:
                case = await self._claims.take(key, free[0])
                if case is None:
                    skip += 1
                    continue
                self._launch(Running(execution=Execution(case, fresh=True), case=case, slot=free.pop(0)))
                if not free:
                    return
            if not keys:
                return

    def _free(self) -> list[str]:
        used = {running.slot for running in self._running.values()}
        room = self._size - len(self._running)
        return [slot for slot in self._slots if slot not in used][: max(0, room)]

    def _is_busy(self, key: str) -> bool:
        return any(running.case.key == key for running in self._running.values())

    def _is_looked_after(self, run: str) -> bool:
        return run in self._running or run in self._claims.taking

    async def _take(self, task: Task, run: Run) -> None:
        """Look after a run that was assigned before; it keeps its agent's name."""
        if self._now:
            return
        case = await self._claims.case_of(task, run)
        if self._is_looked_after(run.id):
            return
        running = Running(execution=Execution(case, fresh=False), case=case, slot=run.agent_id)
        self._launch(running)
        if case.agent == NOBODY and task.status is not Status.VERIFYING:
            running.execution.stop()

    def _launch(self, running: Running) -> None:
        self._running[running.case.run_id] = running
        self._claims.taking.discard(running.case.run_id)
        if self._group is not None:
            self._group.start_soon(self._executes, running)
        if self._draining:
            running.execution.drain()
        if self._now:
            running.execution.stop()

    async def _executes(self, running: Running) -> None:
        case = running.case
        self._tidying += 1
        try:
            await running.execution.run()
            await self._patiently(lambda: self._strikes(running))
        except Exception:  # the run boundary: a defect in looking after one run must not end the others
            log.exception("run_crashed", extra={"task_id": case.key, "run": case.run_id})
            await self._crashed(running)
        finally:
            self._running.pop(case.run_id, None)
            self._bell.ring()
        await running.execution.record()
        closed = running.execution.closed
        if closed is not None:
            await self._behind()
            await self._patiently(lambda: aftermath.after(case, closed, self._agent(running.slot)))
        self._tidying -= 1
        self._bell.ring()

    async def _behind(self) -> None:
        """Let those that are about to start go first: nobody waits for what is done afterwards."""
        with anyio.move_on_after(0 if self._draining else MOST_BEHIND):
            await anyio.sleep(BEHIND)
            while not self._draining and any(one.execution.is_starting for one in self._running.values()):  # noqa: ASYNC110  no hurry
                await anyio.sleep(BEHIND)

    async def _crashed(self, running: Running) -> None:
        """The sweep takes the run up again; after a few times it is given up."""
        case = running.case
        self._crashes[case.run_id] = self._crashes.get(case.run_id, 0) + 1
        if self._crashes[case.run_id] < MOST_CRASHES:
            return
        await case.stop_children(agents=True)

        def given_up(task: Task, at: At) -> Any:
            epoch = task.run.epoch if task.run and task.run.number == case.number else 0
            change = runs.interrupt(task, epoch, "looking after it failed; see the log", at, explained=False)
            return change.then(lambda now: runs.end_run(now, case.number, at, exit_code=None))

        try:
            await case.commit(given_up)
        except NotAllowed as error:
            log.warning("not_given_up", extra={"task_id": case.key, "run": case.run_id, "why": error.message})

    async def _strikes(self, running: Running) -> None:
        """Count a failure of the driver or account, or forget those before."""
        case, store = running.case, self.parts.store
        selectors = [
            ledger.selector_of(outcome, case.agent_name, case.agent)
            for outcome in (Outcome.DRIVER_ERROR, Outcome.ACCOUNT_ERROR)
        ]
        if running.execution.struck is not None:
            outcome, why = running.execution.struck
            selector = ledger.selector_of(outcome, case.agent_name, case.agent)
            facts = await ledger.strike(store, self.parts.clock, selector, case.scrubber.text(why), self._at())
            await self._claims.refresh()
            self._heard(facts)
        elif running.execution.started_well:
            await ledger.clear(store, selectors, self._at())

    # -------------------------------------------------------------------------------------------------- idle

    async def _has_come_to_rest(self) -> bool:
        """Is there nothing to do, also after a sweep has looked for what no event has moved?"""
        if self._ended or not await self._is_idle():
            return False
        await self._sweep.everything()
        return not self._ended and await self._is_idle()

    async def _is_idle(self) -> bool:
        """Is there nothing left that goes on by itself?"""
        if any(not running.execution.stuck for running in self._running.values()):
            return False
        counts = await self.parts.store.counts()
        elsewhere = counts[Status.ASSIGNED] + counts[Status.IN_PROGRESS]
        if elsewhere or await self._claims.candidates(1, 0):
            return False
        async for task in decide.every(self.parts.store, Task, Filter(status=(Status.PENDING, Status.VERIFYING))):
            if goes_on(task):
                return False
        return True


def goes_on(task: Task) -> bool:
    """Will a task that nobody works on go on without a person: held until some time, or proven by another engine?"""
    if task.hold is None:
        return task.status is Status.VERIFYING
    return task.hold.kind in TIME_LIFTS and task.hold.until is not None
