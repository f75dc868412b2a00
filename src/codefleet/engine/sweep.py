"""The safety net: what no event has moved, or what a dead engine has left. Level-triggered; anyone may run it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from codefleet.core.errors import NotAllowed
from codefleet.core.model import Engine, Pause, Run, Status, Task
from codefleet.core.transitions import At, Change, people, runs
from codefleet.engine import artifacts, decide, ledger, rules
from codefleet.engine.claims import Claims
from codefleet.ports import Filter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    claims: Claims
    running: Callable[[str], bool]
    """Is a run of this id looked after here already?"""
    take: Callable[[Task, Run], Awaitable[None]]
    """Look after a run that is ours and that nobody looks after."""

    async def everything(self) -> None:
        await self.pauses()
        await self.adopt()
        await self.own()
        await self.overdue()
        await self.answers()

    def _at(self) -> At:
        return At(self.claims.parts.clock.now(), self.claims.engine)

    async def pauses(self) -> None:
        """Lift those whose time has come, and the holds of those that are lifted."""
        store, at = self.claims.parts.store, self._at()
        async for pause in decide.every(store, Pause, Filter()):
            if pause.active and pause.until is not None and pause.until <= at.now:
                self.claims.heard(await ledger.lift(store, pause, at))
            elif not pause.active:
                await self._release(pause.id)
        await self.claims.refresh()

    async def _release(self, pause: str) -> None:
        at = self._at()
        for key in await self.claims.parts.store.waiting_on(pause):
            change = await decide.change(
                self.claims.parts.store,
                key,
                lambda task: people.unhold(task, at) if _waits(task, pause) else Change(task),
            )
            self.claims.heard(change.facts)

    async def adopt(self) -> None:
        """Take over what engines of this host have left that do not live any more."""
        parts = self.claims.parts
        for engine in await parts.store.engines():
            gone = engine.host == parts.host and engine.id != self.claims.engine and not parts.presence.alive(engine.id)
            if gone:
                await self._adopt_from(engine)

    async def _adopt_from(self, engine: Engine) -> None:
        store = self.claims.parts.store
        for key in await store.owned_by(engine.id):
            task = (await decide.task(store, key)).value
            for run in _open(task, engine.id):
                log.info("adopts", extra={"task_id": key, "run": run.id, "from": engine.id})
                at = self._at()

                def taken(now: Task, number: int = run.number, at: At = at) -> Change:
                    left = any(one.number == number for one in _open(now, engine.id))
                    return runs.adopt(now, number, self.claims.engine, at) if left else Change(now)

                await decide.change(store, key, taken)
        if not await store.owned_by(engine.id):
            await store.retire(engine.id)

    async def own(self) -> None:
        """Look after every run that is ours."""
        store = self.claims.parts.store
        for key in await store.owned_by(self.claims.engine):
            task = (await decide.task(store, key)).value
            for run in _open(task, self.claims.engine):
                if not self.running(run.id):
                    await self.take(task, run)

    async def overdue(self) -> None:
        store = self.claims.parts.store
        for key in await store.overdue(self.claims.parts.clock.now()):
            try:
                await self._overdue(key)
            except NotAllowed as error:
                log.info("overtaken", extra={"task_id": key, "why": error.message})

    async def _overdue(self, key: str) -> None:
        store, at = self.claims.parts.store, self._at()
        change = await rules.due(store, key, at)
        self.claims.heard(change.facts)
        if change.task.status is Status.BLOCKED:
            await rules.recheck(store, key, at)
        if change.task.status is Status.VERIFIED and change.task.awaiting is None and change.task.open_run is None:
            self.claims.heard((await decide.change(store, key, lambda task: people.accept(task, at))).facts)

    async def answers(self) -> None:
        """Take answers that a person wrote into a task's own thread by hand."""
        parts = self.claims.parts
        async for task in decide.every(parts.store, Task, Filter(status=(Status.WAITING,))):
            question = task.question
            if question is None or not question.open or question.live:
                continue
            text = artifacts.answered(artifacts.folder(parts.home, task.id, task.runs), question.id)
            if text is not None:
                await self._answer(task.id, question.id, text)

    async def _answer(self, key: str, question: str, text: str) -> None:
        """The first word counts: somebody may have answered while this one was read."""
        parts, at = self.claims.parts, At(self.claims.parts.clock.now(), "person")

        def answered(task: Task) -> Change:
            same = task.question is not None and task.question.id == question
            return people.answer(task, text, at) if same else Change(task)

        try:
            self.claims.heard((await decide.change(parts.store, key, answered)).facts)
        except NotAllowed as error:
            log.info("overtaken", extra={"task_id": key, "why": error.message})


def _waits(task: Task, pause: str) -> bool:
    return task.hold is not None and task.hold.on == pause


def _open(task: Task, engine: str) -> list[Run]:
    """The runs of a task that have not ended and belong to an engine."""
    known = (*task.lingering, *((task.run,) if task.run else ()))
    return [run for run in known if not run.ended and run.engine == engine]
