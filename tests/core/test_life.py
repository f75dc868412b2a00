"""A task under random events, in any order, from speakers of any epoch: what must hold after each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from codefleet.core.errors import NotAllowed
from codefleet.core.model import FACT_KINDS, TERMINAL, GateResult, Hold, Outcome, Run, RunStatus, Status, Task, Usage
from codefleet.core.transitions import TABLE, At, Change, Event, people, rules, runs
from codefleet.core.transitions.people import Edit
from codefleet.testing import samples

RED = GateResult(name="tests", exit_code=1)
COUNTERS = ("attempts", "rounds", "bounces", "interruptions")

ages = st.sampled_from((0, 0, 0, 1, 2))
"""How many epochs behind a speaker is: mostly it is the one in force."""
caps = st.integers(1, 3)
upstreams = st.sampled_from(("u1", "u2"))
unmets = st.frozensets(upstreams)


def possible(event: Event) -> Callable[[Any], bool]:
    """Where the table allows it: refusals have their own test, and would fill most of a random life."""
    return lambda life: bool(TABLE[event][life.task.status].targets)


class Life(RuleBasedStateMachine):
    """Each rule is something that somebody may do at any moment; `NotAllowed` is a fine answer to it."""

    def __init__(self) -> None:
        super().__init__()
        self.task = samples.pending()
        self.before = self.task
        self.refused = True
        self.way = ""
        self.now = samples.THEN
        self.change = Change(self.task)

    @initialize(task=st.sampled_from([task for variants in samples.every().values() for task in variants]))
    def begin(self, task: Task) -> None:
        self.task = self.before = task

    def _do(self, way: str, step: Callable[[Task, At], Change]) -> None:
        self.now += 1_000
        self.before, self.way = self.task, way
        try:
            self.change = step(self.task, At(self.now, "somebody"))
        except NotAllowed:
            self.refused = True
            return
        self.refused = False
        self.task = self.change.task

    def _speak(self, way: str, behind: int, step: Callable[[Task, int, At], Change]) -> None:
        """Do something in the name of a run, maybe of one that is over."""
        self._do(way, lambda task, at: step(task, task.epoch - behind, at))
        if behind and not self.refused:
            assert self.task == self.before, f"{way}: a run of an old epoch changed the task"

    # what engines and agents do

    @precondition(possible(Event.ASSIGN))
    @rule()
    def assign(self) -> None:
        self._do("assign", lambda task, at: runs.assign(task, samples.attempt(task), at))

    @precondition(possible(Event.DECLINE))
    @rule(behind=ages, kind=st.sampled_from(("scope", "setup")))
    def decline(self, behind: int, kind: str) -> None:
        hold = Hold(kind=kind, text="not now", until=self.now + 2_000)
        self._speak("decline", behind, lambda task, epoch, at: runs.decline(task, epoch, hold, at))

    @precondition(possible(Event.START))
    @rule(behind=ages)
    def start(self, behind: int) -> None:
        self._speak("start", behind, lambda task, epoch, at: runs.start(task, epoch, at, pid=1))

    @precondition(possible(Event.ASK_PARKED))
    @rule(behind=ages, live=st.booleans())
    def ask(self, behind: int, live: bool) -> None:
        self._speak("ask", behind, lambda task, epoch, at: runs.ask(task, epoch, "So?", at, live=live))

    @precondition(possible(Event.PARK))
    @rule()
    def park(self) -> None:
        self._do("park", runs.park)

    @rule(behind=ages, event=st.sampled_from(sorted(runs.REPORTS)))
    def report(self, behind: int, event: Event) -> None:
        self._speak("report", behind, lambda task, epoch, at: runs.report(task, epoch, event, at, head="c0ffee"))
        assert not self.refused, "a report is never refused: it is applied or kept"

    @rule(behind=ages, most=caps)
    def report_nothing(self, behind: int, most: int) -> None:
        self._speak("nothing", behind, lambda task, epoch, at: runs.report_nothing(task, epoch, "none", at, most=most))
        assert not self.refused, "a report is never refused: it is applied or kept"

    @precondition(possible(Event.OWN_ERROR))
    @rule(behind=ages, most=caps, outcome=st.sampled_from((Outcome.OWN_ERROR, Outcome.TIMEOUT, Outcome.FLOOD)))
    def fail(self, behind: int, most: int, outcome: Outcome) -> None:
        self._speak("fail", behind, lambda task, epoch, at: runs.fail(task, epoch, outcome, "it broke", at, most=most))

    @precondition(possible(Event.DRIVER_ERROR))
    @rule(behind=ages, outcome=st.sampled_from((Outcome.DRIVER_ERROR, Outcome.ACCOUNT_ERROR)))
    def fail_driver(self, behind: int, outcome: Outcome) -> None:
        self._speak("driver", behind, lambda task, epoch, at: runs.fail_driver(task, epoch, outcome, "no login", at))

    @precondition(possible(Event.LIMIT_CONTEXT))
    @rule(behind=ages)
    def run_out_of_context(self, behind: int) -> None:
        self._speak("context", behind, runs.run_out_of_context)

    @precondition(possible(Event.LIMIT_BUDGET))
    @rule(behind=ages)
    def run_out_of_budget(self, behind: int) -> None:
        self._speak("budget", behind, lambda task, epoch, at: runs.run_out_of_budget(task, epoch, "spent", at))

    @rule(behind=ages, explained=st.booleans())
    def interrupt(self, behind: int, explained: bool) -> None:
        self._speak(
            "interrupt",
            behind,
            lambda task, epoch, at: runs.interrupt(task, epoch, "engine gone", at, explained=explained),
        )

    @precondition(possible(Event.GATES_GREEN))
    @rule(behind=ages, awaiting=st.sampled_from((None, "review")))
    def pass_gates(self, behind: int, awaiting: str | None) -> None:
        self._speak(
            "green",
            behind,
            lambda task, epoch, at: runs.pass_gates(task, epoch, samples.EVIDENCE, at, proven=True, awaiting=awaiting),
        )

    @precondition(possible(Event.GATES_RED))
    @rule(behind=ages, most=caps)
    def fail_gates(self, behind: int, most: int) -> None:
        self._speak("red", behind, lambda task, epoch, at: runs.fail_gates(task, epoch, RED, "log", at, most=most))

    @precondition(possible(Event.GATES_STUCK))
    @rule(behind=ages)
    def hold_gates(self, behind: int) -> None:
        self._speak("stuck", behind, lambda task, epoch, at: runs.hold_gates(task, epoch, "no such program", at))

    @rule(behind=ages)
    def learn(self, behind: int) -> None:
        self._speak("learn", behind, lambda task, epoch, at: runs.learn(task, epoch, at, session_id="s1"))

    @rule(which=st.integers(1, 6), code=st.sampled_from((0, 1, None)), most=caps)
    def end_run(self, which: int, code: int | None, most: int) -> None:
        spent = Usage(input=10, output=1)
        self._do("end", lambda task, at: runs.end_run(task, which, at, exit_code=code, usage=spent, most=most))

    @rule(which=st.integers(1, 6))
    def adopt(self, which: int) -> None:
        self._do("adopt", lambda task, at: runs.adopt(task, which, "e_2", at))

    # what a person does

    @precondition(possible(Event.DEPEND))
    @rule(unmet=unmets)
    def depend(self, unmet: frozenset[str]) -> None:
        self._do("depend", lambda task, at: people.depend(task, ("u1", "u2"), unmet, at))

    @precondition(possible(Event.ANSWER))
    @rule()
    def answer(self) -> None:
        self._do("answer", lambda task, at: people.answer(task, "left", at))

    @rule(edit=st.sampled_from((Edit(title="Fix it well"), Edit(priority=5), Edit(file_scope=("a/**",)))))
    def edit(self, edit: Edit) -> None:
        self._do("edit", lambda task, at: people.edit(task, edit, at))

    @precondition(possible(Event.HOLD))
    @rule()
    def hold(self) -> None:
        self._do("hold", lambda task, at: people.hold(task, "wait for me", at))

    @rule()
    def unhold(self) -> None:
        self._do("unhold", people.unhold)

    @precondition(possible(Event.RELEASE))
    @rule()
    def release(self) -> None:
        self._do("release", lambda task, at: people.release(task, "to another", at))

    @precondition(possible(Event.CANCEL))
    @rule()
    def cancel(self) -> None:
        self._do("cancel", people.cancel)

    @precondition(possible(Event.RETRY))
    @rule(unmet=unmets)
    def retry(self, unmet: frozenset[str]) -> None:
        self._do("retry", lambda task, at: people.retry(task, unmet, at))

    @precondition(possible(Event.ACCEPT))
    @rule()
    def accept(self) -> None:
        self._do("accept", people.accept)

    @precondition(possible(Event.REQUEST_CHANGES))
    @rule()
    def request_changes(self) -> None:
        self._do("send back", lambda task, at: people.request_changes(task, "more", at))

    @precondition(possible(Event.TAKE_OVER))
    @rule()
    def take_over(self) -> None:
        self._do("take over", people.take_over)

    # what follows from other tasks and from landing

    @rule(upstream=upstreams)
    def meet(self, upstream: str) -> None:
        self._do("meet", lambda task, at: rules.meet(task, upstream, at))

    @rule(upstream=upstreams, if_failed=st.sampled_from(("hold", "run", "skip")))
    def lose(self, upstream: str, if_failed: str) -> None:
        self._do("lose", lambda task, at: rules.lose(replace(task, if_failed=if_failed), upstream, "failed", at))

    @rule()
    def rearm(self) -> None:
        self._do("rearm", rules.rearm)

    @rule()
    def due(self) -> None:
        self._do("due", lambda task, at: rules.due(task, at.now, at))

    @rule(upstream=upstreams)
    def rework(self, upstream: str) -> None:
        self._do("rework", lambda task, at: rules.rework(task, upstream, at))

    @precondition(possible(Event.NOT_CHOSEN))
    @rule()
    def not_chosen(self) -> None:
        self._do("not chosen", lambda task, at: rules.not_chosen(task, "winner", at))

    @precondition(possible(Event.ENQUEUE))
    @rule()
    def enqueue(self) -> None:
        self._do("enqueue", rules.enqueue)

    @precondition(possible(Event.LANDED))
    @rule()
    def landed(self) -> None:
        self._do("landed", lambda task, at: rules.landed(task, "c0ffee", at))

    @precondition(possible(Event.BOUNCE))
    @rule(most=caps)
    def bounce(self, most: int) -> None:
        self._do("bounce", lambda task, at: rules.bounce(task, "red as merged", at, most=most))

    # what must hold whatever happened

    @invariant()
    def a_refusal_and_a_kept_report_change_nothing(self) -> None:
        if self.refused or self.change.kept:
            assert self.task == self.before

    @invariant()
    def epochs_and_runs_only_grow_and_only_by_assign(self) -> None:
        step = 1 if self.way == "assign" and not self.refused else 0
        assert self.task.epoch - self.before.epoch == step
        assert self.task.runs - self.before.runs == step

    @invariant()
    def a_run_is_forgotten_only_when_it_ended_or_never_ran(self) -> None:
        gone = {run.number for run in _owning(self.before)} - {run.number for run in _owning(self.task)}
        assert not gone or (self.way in {"end", "decline"} and len(gone) == 1)

    @invariant()
    def a_run_ends_only_when_its_process_tree_is_confirmed_dead(self) -> None:
        before = {run.number: run.ended for run in _all(self.before)}
        ended = [run for run in _all(self.task) if run.ended and not before.get(run.number)]
        assert not ended or self.way == "end"
        assert all(run.status is RunStatus.ENDED and run.outcome for run in ended)

    @invariant()
    def what_runs_has_a_run_that_is_not_over(self) -> None:
        if self.task.status is Status.ASSIGNED:
            assert self.task.run is not None
            assert self.task.run.epoch == self.task.epoch

    @invariant()
    def nothing_terminal_comes_back_but_by_a_person(self) -> None:
        if self.before.status in TERMINAL and self.task.status not in TERMINAL:
            assert self.way in {"retry", "take over"}
            assert self.before.status is not Status.COMPLETED

    @invariant()
    def only_what_is_over_has_an_end(self) -> None:
        assert (self.task.completed_at is not None) == (self.task.status in TERMINAL)

    @invariant()
    def a_task_waits_exactly_while_its_question_is_open(self) -> None:
        asks = self.task.question is not None and self.task.question.open
        assert asks == (self.task.status is Status.WAITING)

    @invariant()
    def a_question_is_live_only_while_its_process_may_live(self) -> None:
        question, run = self.task.question, self.task.run
        if question and question.open and question.live:
            assert run is not None
            assert not run.ended

    @invariant()
    def blocked_means_that_something_is_open_and_pending_that_nothing_is(self) -> None:
        if self.task.status is Status.BLOCKED:
            assert self.task.blocked_by
        if self.task.status in {Status.PENDING, Status.ASSIGNED}:
            assert not self.task.blocked_by

    @invariant()
    def counters_move_one_step_and_only_for_their_own_reason(self) -> None:
        reasons = {
            "attempts": {"fail", "nothing", "end"},
            "rounds": {"red"},
            "bounces": {"bounce"},
            "interruptions": {"interrupt"},
        }
        for counter in COUNTERS:
            step = getattr(self.task, counter) - getattr(self.before, counter)
            assert step <= 1
            if step == 1:
                assert self.way in reasons[counter]

    @invariant()
    def a_persons_hold_is_lifted_by_a_person_or_by_the_end(self) -> None:
        held = self.before.hold is not None and self.before.hold.kind == "person"
        kept = self.task.hold is not None and self.task.hold.kind == "person"
        if held and not kept and self.task.status not in TERMINAL:
            assert self.way in {"unhold", "retry", "take over", "stuck"}

    @invariant()
    def every_step_of_the_status_is_a_fact_of_a_known_kind(self) -> None:
        silent = {"take over"}
        if not self.refused and self.task.status != self.before.status and self.way not in silent:
            assert self.change.facts
        for fact in self.change.facts:
            assert fact.kind in FACT_KINDS
            assert (fact.task_id, fact.project) == (self.task.id, self.task.project)

    @invariant()
    def the_totals_are_the_sum_of_what_has_ended(self) -> None:
        assert self.task.usage.input >= self.before.usage.input
        if self.task.usage != self.before.usage:
            assert self.way == "end"


def _all(task: Task) -> tuple[Run, ...]:
    return (*task.lingering, *((task.run,) if task.run else ()))


def _owning(task: Task) -> tuple[Run, ...]:
    """The runs that still own a workspace."""
    return tuple(run for run in _all(task) if not run.ended)


TestLife: Any = Life.TestCase
TestLife.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
