"""One run from where it stands to its end: the same for a run just assigned and for one that another engine left.

What is to be done next follows from the task as it is stored (`stage_of`) and from what lies on the spools, never from
memory, so a run can change hands at any instant. Each stage ends by a commit that makes another stage the right one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any

import anyio

from codefleet.core.errors import GitError, NoSpace, NotAllowed, StoreUnavailable
from codefleet.core.model import Evidence, GateResult, Hold, Outcome, Run, Status, Task
from codefleet.core.transitions import At, Change, people, runs
from codefleet.core.verdicts import Kind, Verdict, judge
from codefleet.engine import aftermath, artifacts, decide, prompt, proof, remains, speaking
from codefleet.engine.asking import Asking
from codefleet.engine.bell import Bell
from codefleet.engine.case import Case
from codefleet.engine.claims import remember
from codefleet.engine.conversation import POLL, Conversation
from codefleet.engine.prepare import Declined, place, prepare, workspace_of
from codefleet.engine.talk import Talk
from codefleet.ports import ChangeSet, ChildStatus

log = logging.getLogger(__name__)

WAIT = 0.5
"""Seconds before a stage is tried again that a store or a disk has broken off."""
LOOK_AGAIN = 30.0
"""Seconds between looks whether gates that could not run have been changed."""
OUT_OF_REACH = (NoSpace, StoreUnavailable)
BREAKS = (NotAllowed, *OUT_OF_REACH)
"""What breaks a stage off and is no defect: it is looked at anew."""
RUNNING = frozenset({Status.ASSIGNED, Status.IN_PROGRESS, Status.WAITING})


class Stage(Enum):
    PREPARE = auto()
    RESUME = auto()
    FOLLOW = auto()
    PROVE = auto()
    LEAVE = auto()
    END = auto()


class Execution:
    """`run` it in a task group; `notice` when the task changed elsewhere, `stop` to let go of it."""

    def __init__(self, case: Case, *, fresh: bool) -> None:
        self.case = case
        self.struck: tuple[Outcome, str] | None = None
        """How the driver or the account failed, if one did."""
        self.started_well = False
        self.closed: Run | None = None
        """The run as it was when it ended here."""
        self.stuck = False
        """Waits for gates that can not run."""
        self._fresh = fresh
        self._stopping = False
        self._draining = False
        self._bell = Bell()
        self._news = Bell()
        self._stage: Stage | None = None
        self._scope = anyio.CancelScope()
        self._asking = Asking(case)
        self._with = Conversation(case, self._bell)

    # ------------------------------------------------------------------------------------------ from outside

    @property
    def is_starting(self) -> bool:
        """Is its agent not running yet?"""
        return self._stage is None or self._stage is Stage.PREPARE

    def notice(self) -> None:
        """The task was changed by somebody else."""
        self._news.ring()

    def stop(self) -> None:
        """End the agent, keep its work, put the task back."""
        self._stopping = True
        self._news.ring()

    def drain(self) -> None:
        """No waiting for what only a person can repair."""
        self._draining = True
        self._news.ring()

    async def record(self) -> None:
        """Write what its agents said and is not written yet; nobody waits for that."""
        await self._with.record()

    # ------------------------------------------------------------------------------------------------ stages

    async def run(self) -> None:
        """Until the run has ended, or must be left for another engine."""
        acts: dict[Stage, Callable[[Task], Awaitable[None]]] = {
            Stage.PREPARE: self._prepare,
            Stage.RESUME: self._resume,
            Stage.FOLLOW: self._follow,
            Stage.PROVE: self._prove,
            Stage.LEAVE: self._leave,
            Stage.END: self._end,
        }
        async with anyio.create_task_group() as group:
            self._with.live_in(group)
            if not self._fresh:
                await self.case.stop_children(agents=False)
            group.start_soon(self._watch)
            while (stage := await self._look()) is not None:
                self._stage = stage
                with anyio.CancelScope() as self._scope:
                    await self._act(acts[stage])
                if stage is Stage.LEAVE:
                    break
            group.cancel_scope.cancel()

    async def _act(self, act: Callable[[Task], Awaitable[None]]) -> None:
        """One stage. What the table refuses was overtaken by somebody: look again. So does a stage that a store out of
        reach has broken off: whatever it had begun, it finds as it left it."""
        assert self.case.task is not None  # noqa: S101  set by every look
        about = {"task_id": self.case.key, "run": self.case.run_id}
        try:
            await act(self.case.task)
        except NotAllowed as error:
            log.info("overtaken", extra={**about, "why": error.message})
        except OUT_OF_REACH as error:
            log.warning("run_waits", extra={**about, "error": error.message})
            await self.case.parts.clock.sleep(WAIT)

    async def _look(self) -> Stage | None:
        """Read the task; the stage that is right now, None when the run has ended."""
        case, known = self.case, self.case.task
        now = (await case.patiently(lambda: decide.task(case.parts.store, case.key))).value
        if case.task is not known:  # committed here while this was read
            return await self._look()
        case.task = now
        run = case.run_of(now)
        return None if run is None or run.ended else self._stage_of(now)

    def _stage_of(self, task: Task) -> Stage:
        if task.run is None or task.run.number != self.case.number:
            return Stage.END
        if task.status is Status.VERIFYING:
            stuck = self._draining and task.hold is not None and task.hold.kind == "gates"
            return Stage.LEAVE if self._stopping or stuck else Stage.PROVE
        live = task.status is Status.WAITING and task.question is not None and task.question.live
        if self._stopping or not (live or task.status in {Status.ASSIGNED, Status.IN_PROGRESS}):
            return Stage.END
        if task.status is Status.ASSIGNED:
            return Stage.PREPARE if self._fresh else Stage.RESUME
        return Stage.FOLLOW

    async def _watch(self) -> None:
        """Abort a stage that is not the right one any more; never the one that came after it."""
        while True:
            await self._news.wait()
            scope, before = self._scope, self._stage
            after = await self._look()
            lasts = scope is self._scope and before not in {None, Stage.END, Stage.LEAVE}
            if lasts and after is not before:
                scope.cancel()
            self._bell.ring()

    # ---------------------------------------------------------------------------------------- prepare, start

    async def _prepare(self, task: Task) -> None:
        """A workspace, a prompt, and the agent on its spool."""
        made = await prepare(self.case, task)
        if isinstance(made, Declined):
            await self._decline(made.hold)
            return
        broken_off: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(aftermath.snapshot, self.case)
            try:
                await self._start(await self._with.speak(task, made.text, resume=made.resume))
            except BREAKS as error:  # the group would wrap it
                broken_off = error
        if broken_off is not None:
            raise broken_off

    async def _resume(self, task: Task) -> None:
        """Another engine died between assign and start: the spool tells whether an agent ran."""
        await self._with.adopt()
        if self._with.last is not None:
            self.case.workspace = await self.case.patiently(lambda: place(self.case, task))
            await self._start(self._with.last)
        else:
            await self._fall("its engine died before its agent was started", explained=False)

    async def _decline(self, hold: Hold) -> None:
        self.case.sweep_tmp()
        await self.case.commit(lambda task, at: runs.decline(task, self._epoch(task), hold, at))

    async def _start(self, talk: Talk) -> None:
        """Record that the agent runs, or why it could not."""
        status = talk.child.status()
        if status.exec_error:
            self.struck = (Outcome.DRIVER_ERROR, status.exec_error)
            await self._finish(lambda task, at: self._driver_failed(task, at, Outcome.DRIVER_ERROR, status.exec_error))
            return
        where = self.case.workspace
        about: dict[str, Any] = {}
        if where is not None:
            about = {"workspace": str(where.path), "branch": where.branch, "base": where.base}
        await self.case.commit(
            lambda task, at: (
                runs.start(task, self._epoch(task), at, pid=status.pid, **about)
                if task.status is Status.ASSIGNED
                else Change(task)
            )
        )

    def _epoch(self, task: Task) -> int:
        """The epoch that this run was assigned under; 0, which no run has, when it is not the task's run any more."""
        return task.run.epoch if task.run is not None and task.run.number == self.case.number else 0

    # ------------------------------------------------------------------------------------------------ follow

    async def _follow(self, task: Task) -> None:
        """Listen to the agent until its turn is over, and answer what it asks."""
        self._know_workspace(task)
        talk = await self._with.on(task)
        while not talk.is_over:
            await self._asking.serve(self.case.task or task)
            await self._bell.wait(POLL)
        await self._asking.serve(self.case.task or task)
        deaf = self._with.died_deaf(talk, task.run.round if task.run else 0)
        if self._stage_of(self.case.task or task) is Stage.FOLLOW and not deaf:
            await self._judge(self.case.task or task, talk)

    def _know_workspace(self, task: Task) -> None:
        if self.case.workspace is None and task.run is not None:
            self.case.workspace = workspace_of(self.case, task.run)

    # ------------------------------------------------------------------------------------------------- judge

    async def _judge(self, task: Task, talk: Talk) -> None:
        """The turn is over: commit what it left, and decide what it was."""
        status = talk.child.status()
        if talk.heard_all and status.ended_by == "stop":
            await self._fall("its engine stopped it", explained=True)
            return
        if self._went_down(talk, status):
            await self._fall("its machine went down", explained=True)
            return
        if self._with.resumed_in_vain(talk):
            await self._begin_anew(task, talk)
            return
        try:
            changes = await remains.settled(self.case, task)
        except GitError as error:
            await self._fall(f"its workspace can not be read: {error.message}", explained=False)
            return
        seen = remains.observed(self.case, task, talk, changes, failed=self._with.failure(talk))
        await self._decide(judge(seen), changes)

    def _went_down(self, talk: Talk, status: ChildStatus) -> bool:
        """Was it cut off by the end of its machine, with nothing to show that it was done?"""
        cut_off = talk.heard_all and status.ended_by == "machine" and not talk.turn_is_over
        return cut_off and artifacts.read_result(self.case.artifacts) is None

    async def _begin_anew(self, task: Task, talk: Talk) -> None:
        self._with.forget(talk)
        made = await prepare(self.case, task, fresh_session=True)
        if isinstance(made, Declined):
            await self._fall(made.hold.text, explained=True)
            return
        text = made.text if not (task.run and task.run.round) else speaking.message(self.case, task.run.round)
        await self._with.speak(task, text, resume=False)

    async def _decide(self, verdict: Verdict, changes: ChangeSet | None) -> None:
        if verdict.kind is Kind.REPORT:
            self.started_well = True
            await self._report(verdict, changes)
        elif verdict.kind is Kind.DRIVER:
            self.struck = (verdict.outcome, verdict.reason)
            await self._finish(lambda task, at: self._driver_failed(task, at, verdict.outcome, verdict.reason))
        else:
            await self._finish(lambda task, at: self._without_report(task, at, verdict, changes))
            await self._asking.show()

    async def _report(self, verdict: Verdict, changes: ChangeSet | None) -> None:
        head, tree, files = (changes.head, changes.tree, changes.files) if changes else ("", "", ())

        def reported(task: Task, at: At) -> Change:
            epoch = self._epoch(task)
            change = runs.report(task, epoch, verdict.event, at, head=head, files=files, result=verdict.result)
            return change.then(lambda after: runs.learn(after, epoch, at, tree=tree))

        await self.case.commit(reported)

    def _driver_failed(self, task: Task, at: At, outcome: Outcome, reason: str) -> Change:
        return runs.fail_driver(task, self._epoch(task), outcome, reason, at)

    def _without_report(self, task: Task, at: At, verdict: Verdict, changes: ChangeSet | None) -> Change:
        """It asked, used up its context, or failed: what it committed so far stays with the run."""
        epoch = self._epoch(task)
        if changes is not None:
            task = runs.learn(task, epoch, at, head=changes.head, tree=changes.tree, files=changes.files).task
        if verdict.kind is Kind.ASK or task.status is Status.WAITING:
            return runs.ask(task, epoch, verdict.reason, at, live=False)
        if verdict.kind is Kind.CONTEXT:
            return runs.run_out_of_context(task, epoch, at)
        return runs.fail(task, epoch, verdict.outcome, verdict.reason, at, most=self.case.settings.limits.attempts)

    # ------------------------------------------------------------------------------------------------- prove

    async def _prove(self, task: Task) -> None:
        """Run the gates on what it brought; send red back, hold what can not run."""
        self._know_workspace(task)
        await self._with.adopt()
        run = task.run
        if run is None:  # pragma: no cover - a task that is verified has a run
            return
        await self.case.commit(runs.lift_gates)
        if not self.case.settings.trusted:
            await self._hold(f"what {self.case.repository} would run here is not trusted; see `codefleet trust`")
            return
        if not self.case.settings.gates:
            await self._green(run, ())
            return
        said = await proof.prove(self.case, run.head, run.tree)
        if isinstance(said, proof.Green):
            await self._green(run, said.gates)
        elif isinstance(said, proof.Red):
            await self._red(task, said)
        else:
            await self._hold(said.text)

    async def _green(self, run: Run, gates: tuple[GateResult, ...]) -> None:
        evidence = Evidence(commit=run.head or None, tree=run.tree or None, base=run.base or None, gates=gates)
        policy = self.case.settings.policy

        def passed(task: Task, at: At) -> Change:
            doubt = task.outcome == "no_change" and task.expects.value == "change"
            doubt = doubt or (task.run is not None and task.run.stale)
            awaiting = "review" if doubt or policy == "review" else None
            return runs.pass_gates(task, self._epoch(task), evidence, at, proven=bool(gates), awaiting=awaiting)

        await self._finish(passed)

    async def _red(self, task: Task, red: proof.Red) -> None:
        """Back to the same session with the output while rounds are left; the message is kept before the commit."""
        text = prompt.red_gate(red.result, red.gate.command, red.log, mark=prompt.new_mark())
        round_ = task.run.round + 1 if task.run else 1
        speaking.keep_message(self.case, round_, text)
        short = prompt.tail(red.log)[-2000:]

        def failed(task: Task, at: At) -> Change:
            most = self.case.settings.limits.rounds
            change = runs.fail_gates(task, self._epoch(task), red.result, short, at, most=most)
            return (
                change.then(lambda after: runs.note(after, text, at)) if change.task.status is Status.FAILED else change
            )

        await self.case.commit(failed)

    async def _hold(self, text: str) -> None:
        """Wait until somebody lifts the hold or changes the gates."""
        case = self.case
        self.stuck = True
        try:
            await case.commit(lambda task, at: runs.hold_gates(task, self._epoch(task), text, at))
            self._news.ring()
            while self.case.task is not None and not await proof.may_run(self.case, self.case.task):
                await self._bell.wait(LOOK_AGAIN)
        finally:
            self.stuck = False

    # --------------------------------------------------------------------------------------------------- end

    async def _leave(self, task: Task) -> None:
        """The task stays as it is; what runs is ended, and the next engine goes on."""
        log.info("left", extra={"task_id": task.id, "run": self.case.run_id, "status": str(task.status)})
        await self._with.close(polite=False)

    async def _fall(self, why: str, *, explained: bool) -> None:
        """The run is over by no fault of the task: its work is saved, the task goes back."""
        await self._let_go(
            lambda task, at: runs.interrupt(task, self._epoch(task), why, at, explained=explained), settle=False
        )

    async def _end(self, task: Task) -> None:
        """It is not this run's turn any more: end its tree, save its work, free its workspace."""
        self._know_workspace(task)
        await self._with.adopt()
        if task.status is Status.WAITING and not self._stopping:
            await self._asking.park(task)
            await self._with.let_turn_end()
            await self._let_go(lambda task, _: Change(task), settle=task.run is not None and not task.run.ended)
        elif self._stopping and task.status in RUNNING:
            await self._fall("its engine was stopped", explained=True)
        else:
            await self._let_go(lambda task, _: Change(task), settle=False)

    async def _let_go(self, decision: Callable[[Task, At], Change], *, settle: bool) -> None:
        status = await self._with.close(polite=settle)
        saved = await remains.save(self.case, settle=settle)
        await self._remember_lingering(status)
        await self._commit_end(lambda task, at: decision(task, at).then(lambda now: saved(now, at)), status)

    async def _remember_lingering(self, status: ChildStatus) -> None:
        """A run that another one has followed is on record before its task forgets it."""
        task = self.case.task
        run = self.case.run_of(task) if task is not None else None
        if run is not None and task is not None and run is not task.run:
            over = runs.closed(run, self.case.at(), **self._end_of(run, status))
            await self.case.patiently(lambda: remember(self.case.parts, over))

    async def _finish(self, decision: Callable[[Task, At], Change]) -> None:
        """End the session and the tree, then commit what was decided."""
        await self._commit_end(decision, await self._with.close(polite=True))

    async def _commit_end(self, decision: Callable[[Task, At], Change], status: ChildStatus) -> None:
        """The decision, the end of the run and, where policy says so, the acceptance of its work, as one commit."""

        def all_at_once(task: Task, at: At) -> Change:
            change = decision(task, at).then(lambda now: self._ended(now, at, status))
            return change.then(lambda now: self._accepted(now, at))

        await self.case.commit(all_at_once)
        self.case.sweep_tmp()

    def _ended(self, task: Task, at: At, status: ChildStatus) -> Change:
        run = self.case.run_of(task)
        if run is None or run.ended:
            return Change(task)
        end = self._end_of(run, status)
        self.closed = runs.closed(run, at, **end)
        return runs.end_run(task, self.case.number, at, most=self.case.settings.limits.attempts, **end)

    def _end_of(self, run: Run, status: ChildStatus) -> dict[str, Any]:
        used = self._with.used
        end = {"exit_code": status.code, "usage": used.usage, "cost_usd": used.cost_usd}
        return {**end, **self._with.session_left(run)}

    def _accepted(self, task: Task, at: At) -> Change:
        if task.status is not Status.VERIFIED or task.awaiting is not None or self.case.settings.policy != "none":
            return Change(task)
        return people.accept(task, at)
