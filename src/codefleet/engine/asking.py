"""What a running agent asks: taken from its folder, put to a person, answered back."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from codefleet.core.errors import NotAllowed
from codefleet.core.model import Question, Status, Task
from codefleet.core.transitions import At, Change, people, runs
from codefleet.core.transitions.change import fact
from codefleet.engine import artifacts, files, requests
from codefleet.engine.case import Case
from codefleet.engine.requests import Request

log = logging.getLogger(__name__)

MOST_OPTIONS = 20


class Asking:
    """Serves the requests of one run's agent."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._seen: tuple[str, float] = ("", 0.0)
        """The live question, and when it was first seen here: a wall clock may jump."""

    @property
    def _folder(self) -> Path:
        return self._case.artifacts / artifacts.REQUESTS

    async def serve(self, task: Task) -> None:
        """Look at what lies there now."""
        for request in await anyio.to_thread.run_sync(requests.pending, self._folder):
            await self._one(task, request)
        withdrawn = await anyio.to_thread.run_sync(_withdrawn, self._folder)
        if withdrawn is not None:
            await self._look_after_withdrawn(self._case.task or task, withdrawn)
        await self._look_after_question(self._case.task or task)

    async def _one(self, task: Task, request: Request) -> None:
        run = self._case.run_of(task)
        if run is None or not requests.matches(request, run.token):
            await self._refuse(task, request)
            return
        question = task.question
        if question is not None and question.run == run.id and question.request == request.number:
            self._tell(question, request)
        elif task.status is Status.IN_PROGRESS:
            await self._ask(task, request)
        elif question is None or not question.open:
            requests.reply(self._folder, request, {"parked": True})

    def _tell(self, question: Question, request: Request) -> None:
        """What became of the question, if anything did."""
        if question.answer is not None:
            artifacts.write_answer(self._case.artifacts, question)
            requests.reply(self._folder, request, {"answer": question.answer})
        elif not question.live or question.moot:
            requests.reply(self._folder, request, {"parked": True})

    async def _refuse(self, task: Task, request: Request) -> None:
        why = request.refused or "its token is not that of the run"
        log.warning("request_refused", extra={"task_id": task.id, "run": self._case.run_id, "why": why})
        requests.reply(self._folder, request, {"refused": why})
        said = f"request {request.number} was refused: {why}"
        await self._case.commit(lambda now, at: Change(now, (fact(now, "error", at, code="request", text=said),)))

    async def _look_after_withdrawn(self, task: Task, request: Request) -> None:
        """Its asker was told that the question is parked, and maybe nobody has seen it, or its answer came too late."""
        run, question = self._case.run_of(task), task.question
        if run is None or task.status is not Status.IN_PROGRESS or not requests.matches(request, run.token):
            return
        known = question if question and question.run == run.id and question.request >= request.number else None
        if known is None:
            await self._ask(task, request, live=False)
        elif known.request == request.number and known.answer is not None:
            asked = await self._ask(task, request, live=False)
            if asked is not None:
                again = replace(asked, answer=known.answer, answered_at=known.answered_at)
                artifacts.write_answer(self._case.artifacts, again)

    async def _ask(self, task: Task, request: Request, *, live: bool = True) -> Question | None:
        epoch = task.run.epoch if task.run else 0
        data = self._case.scrubber.data(request.data)
        text = str(data.get("text", ""))[: artifacts.MOST_SUMMARY].strip() or "(no words)"
        given = data.get("options")
        options = tuple(str(one)[:200] for one in given[:MOST_OPTIONS]) if isinstance(given, list) else ()

        def asked(now: Task, at: At) -> Change:
            return runs.ask(now, epoch, text, at, options=options, live=live, request=request.number)

        change = await self._case.commit(asked, by=task.assigned_to or "")
        if change.task.question is not None:
            artifacts.ask(self._case.artifacts, change.task.question)
        return change.task.question

    async def _look_after_question(self, task: Task) -> None:
        """Park a live question whose asker or whose time is gone; take an answer that was written by hand."""
        question = task.question
        if task.status is not Status.WAITING or question is None or not question.live or not question.open:
            return
        by_hand = artifacts.answered(self._case.artifacts, question.id)
        if by_hand is not None:
            await self._case.commit(lambda now, at: people.answer(now, by_hand, at), by="person")
            return
        if self._waited(question) or requests.gave_up(self._folder, Request(number=question.request)):
            await self._park()

    def _waited(self, question: Question) -> bool:
        """Has it waited as long as a live question may?"""
        now = self._case.parts.clock.monotonic()
        if self._seen[0] != question.id:
            self._seen = (question.id, now)
        return now - self._seen[1] >= self._case.settings.limits.question_live_minutes * 60

    async def _park(self) -> None:
        try:
            await self._case.commit(runs.park)
        except NotAllowed as error:
            log.info("overtaken", extra={"task_id": self._case.key, "why": error.message})

    async def show(self) -> None:
        """Write the open question where a person may answer it by hand."""
        question = self._case.task.question if self._case.task else None
        if question is not None and question.open and question.run == self._case.run_id:
            await anyio.to_thread.run_sync(artifacts.ask, self._case.artifacts, question)

    async def park(self, task: Task) -> None:
        """Tell whoever still waits that the question is parked."""
        question = task.question
        if question is None:
            return
        artifacts.ask(self._case.artifacts, question)
        for request in await anyio.to_thread.run_sync(requests.pending, self._folder):
            requests.reply(self._folder, request, {"parked": True})


def _withdrawn(folder: Path) -> Request | None:
    """The last request, if its asker gave up before it was answered."""
    names = [path.name.removesuffix(".json") for path in folder.glob("*.json")]
    number = max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)
    answer = artifacts.parse(files.read(folder / f"{number}{requests.ANSWER}")) if number else None
    said = artifacts.parse(files.read(folder / f"{number}.json")) if answer and answer.get(requests.GAVE_UP) else None
    if said is None:
        return None
    token, data = said.get("token"), said.get("data")
    return Request(number=number, token=str(token), data=data if isinstance(data, dict) else {})
