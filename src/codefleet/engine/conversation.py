"""All children of the agent in one run: those taken up, the one that is spoken to now, and how they are ended."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.abc

from codefleet.core.model import Outcome, Run, Task
from codefleet.core.progress import Spent, spent
from codefleet.engine import speaking
from codefleet.engine.bell import Bell
from codefleet.engine.case import Case
from codefleet.engine.talk import Talk
from codefleet.ports import ChildState, ChildStatus, EndingKind

POLL = 0.25
"""Seconds between looks where no event comes."""
END_OF_TURN = 20.0
"""Seconds that an agent gets to end its turn when its question was parked."""
FAREWELL = 10.0
"""Seconds that a live session gets to end when it was asked to."""
GRACE = 5.0
"""Seconds between asking a child to end and killing it."""

FAILURES = {
    EndingKind.OWN_ERROR: Outcome.OWN_ERROR,
    EndingKind.DRIVER_ERROR: Outcome.DRIVER_ERROR,
    EndingKind.ACCOUNT_ERROR: Outcome.ACCOUNT_ERROR,
    EndingKind.CONTEXT: Outcome.CONTEXT,
}
ENDED_BY = {
    "limit": (Outcome.TIMEOUT, "it ran longer than it may"),
    "flood": (Outcome.FLOOD, "it printed more than it may"),
}


class Conversation:
    """`bell` rings when there is something new; its listeners live where `live_in` says."""

    def __init__(self, case: Case, bell: Bell) -> None:
        self.used = Spent()
        """What the run has used, known when all is ended."""
        self._case = case
        self._group: anyio.abc.TaskGroup | None = None
        self._bell = bell
        self._talks: list[Talk] = []

    def live_in(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group

    @property
    def last(self) -> Talk | None:
        return self._talks[-1] if self._talks else None

    # ------------------------------------------------------------------------------------------------- speak

    async def speak(self, task: Task, text: str, *, resume: bool, session: str = "") -> Talk:
        """Start a child of the agent and listen to it."""
        talk = await speaking.speak(self._case, task, text, self._bell, resume=resume, session=session)
        self._listen(talk)
        return talk

    async def adopt(self) -> bool:
        """Take up all children of the agent that ran; is there one?"""
        if not self._talks:
            for talk in await speaking.adopt(self._case, self._bell):
                self._listen(talk)
        return bool(self._talks)

    def _listen(self, talk: Talk) -> None:
        case = self._case
        root = str(case.workspace.path) if case.workspace else ""
        self._talks.append(talk)
        assert self._group is not None  # noqa: S101  given before anything is said
        self._group.start_soon(talk.listen, case.parts.store, case.parts.clock, case.scrubber, root)

    async def on(self, task: Task) -> Talk:
        """The child that works on the present round: known, adopted, or told to now."""
        await self.adopt()
        round_ = task.run.round if task.run else 0
        talk = self.last
        if talk is not None:
            await self._hear_out(talk)
        if talk is not None and round_ in talk.said.rounds and not self.died_deaf(talk, round_):
            return talk
        text = speaking.message(self._case, round_)
        if talk is not None and talk.alive and self._case.driver.capabilities.live:
            talk.keep_in_mind(
                speaking.kept_at(self._case, talk.name), round_, text, speaking.uuid_of(self._case, round_)
            )
            await self._case.patiently(talk.say_again)
            return talk
        session = self._session(task)
        return await self.speak(task, text, resume=bool(session), session=session)

    async def _hear_out(self, talk: Talk) -> None:
        """Of a process that has ended all is heard before anything is made of it."""
        while talk.alive and talk.child.status().state in {ChildState.EXITED, ChildState.DONE}:
            await self._bell.wait(POLL)

    def died_deaf(self, talk: Talk, round_: int) -> bool:
        """Did a session end before it took the message of a further round? Another process goes on with it."""
        uuid = speaking.uuid_of(self._case, round_)
        unheard = uuid in talk.said.uuids - talk.progress.taken and min(talk.said.rounds) < round_
        return unheard and talk.heard_all and talk.child.status().ended_by in {"", "machine"}

    def _session(self, task: Task) -> str:
        """The session that a next child of this run can go on with."""
        if not self._case.driver.capabilities.resume or self.last is None:
            return ""
        progress = self.last.progress
        known = task.run.session_id if task.run and progress.started else ""
        return progress.session_id or known

    def forget(self, talk: Talk) -> None:
        """It never came up: what it was told is told to another."""
        self._talks.remove(talk)

    # ------------------------------------------------------------------------------------------------- judge

    def failure(self, talk: Talk) -> tuple[Outcome | None, str]:
        """How a child's turn failed, if it did."""
        status = talk.child.status()
        if talk.heard_all and status.ended_by in ENDED_BY:
            return ENDED_BY[status.ended_by]
        if status.exec_error:
            return Outcome.DRIVER_ERROR, status.exec_error
        errors = self._case.scrubber.text(speaking.errors(self._case, talk.name))
        ending = self._case.driver.conclude(talk.progress, status, errors)
        return FAILURES.get(ending.kind), ending.reason

    def resumed_in_vain(self, talk: Talk) -> bool:
        """Did it end at once because the session that it should go on with is not there?"""
        in_vain = talk.said.resume and talk.heard_all and not talk.progress.started
        return in_vain and self.failure(talk)[0] is not None

    def session_left(self, run: Run) -> dict[str, Any]:
        """What a next run may go on with: nothing when its session never came up, the one before when that was to go on."""
        started = [talk.progress for talk in self._talks if talk.progress.started]
        if not started and self._talks and not any(talk.said.resume for talk in self._talks):
            return {"session_id": ""}
        if not started:
            return {}
        return {"session_id": started[-1].session_id or run.session_id, "model": started[-1].model or run.model}

    # --------------------------------------------------------------------------------------------------- end

    async def let_turn_end(self) -> None:
        talk = self.last
        with anyio.move_on_after(END_OF_TURN):
            while talk is not None and not talk.is_over:
                await self._bell.wait(POLL)

    async def close(self, *, polite: bool) -> ChildStatus:
        """End all that runs: a live session by its own farewell, the rest at once. The agent's last exit status."""
        last = self.last
        if last is not None and polite and last.alive:
            await self._say_farewell(last)
        for talk in self._talks:
            if talk.child.status().state is not ChildState.DONE:
                await talk.child.stop(GRACE)
        await self._case.stop_children(agents=True)
        with anyio.move_on_after(FAREWELL):
            while any(talk.alive for talk in self._talks):
                await self._bell.wait(POLL)
        await self._count()
        return last.child.status() if last is not None else ChildStatus()

    async def record(self) -> None:
        """Write what was said and is not written yet, and let go of children that are done."""
        for talk in self._talks:
            await talk.record(self._case.parts.store)
            if talk.child.status().state is ChildState.DONE:
                await talk.child.wait()

    async def _say_farewell(self, talk: Talk) -> None:
        line = self._case.driver.farewell() if self._case.driver.capabilities.live else b""
        if not line:
            return
        await talk.child.send(line)
        with anyio.move_on_after(FAREWELL):
            await talk.child.wait()

    async def _count(self) -> None:
        """A session that reports all of itself is counted once over the runs that share it."""
        children = [talk.progress for talk in self._talks]
        before: dict[str, Spent] = {}
        if any(child.of_session for child in children):
            keys = [f"{self._case.key}.{number}" for number in range(1, self._case.number)]
            for held in await self._case.parts.store.get(Run, keys):
                run = held.value
                before[run.session_id] = before.get(run.session_id, Spent()).plus(Spent(run.usage, run.cost_usd))
        self.used = spent(children, before)
