"""Every cell of the table of events and states, executed, the refused ones too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from codefleet.core.errors import NotAllowed
from codefleet.core.model import TERMINAL, GateResult, Hold, Outcome, Status, Task
from codefleet.core.transitions import TABLE, At, Change, Event, people, rules, runs
from codefleet.core.transitions.people import Edit
from codefleet.core.transitions.table import LETTERS
from codefleet.testing import samples

AT = At(samples.THEN + 5_000, "test")
RED = GateResult(name="tests", exit_code=1)

# A second copy of the table, written by hand: a cell that is changed in the code alone fails here.
#   = accepted, the status stays   . refused   k kept as salvage   - cannot arise
# Three cells know more than "one event, one end": a pending task stays pending when only met dependencies are changed, an
# assigned one stays assigned; the end of a run may come after its gates have passed (V, D, L, C), and changes no status.
EXPECTED = """
    dependencies edited        B/P   B/P A/B =   =   .   .   .   .   =   .
    dependency met             B/P   =   =   =   =   =   =   =   =   =   =
    dependency failed          B/P/X -   -   -   -   -   -   -   -   -   -
    assign                     .     A   .   .   .   .   .   .   .   .   .
    decline                    .     .   P   .   .   .   .   .   .   .   .
    start                      .     .   R   .   .   .   .   .   .   .   .
    ask live                   .     .   .   W   .   .   .   .   .   .   .
    ask parked                 .     .   .   W   =   .   .   .   .   .   .
    unanswered                 .     .   .   .   W   .   .   .   .   .   .
    answer                     .     .   .   .   R/P .   .   .   .   .   .
    report change              k     k   k   V   V/k k   k   k   k   k   k
    report result              k     k   k   V   V   k   k   k   k   k   k
    report no change           k     k   k   V   V/k k   k   k   k   k   k
    report nothing             k     k   k   P/F k   k   k   k   k   k   k
    own error                  .     .   P/F P/F P/F .   .   .   .   .   .
    driver error               .     .   P   P   W   =   =   =   .   .   .
    limit context              .     .   .   P   =   =   =   =   =   =   =
    limit time                 .     .   .   P/F =   =   =   =   =   =   =
    limit budget               .     .   .   W   =   =   =   =   =   =   =
    take over                  .     .   .   =   R   .   R   .   .   R   R
    hold                       =     =   P   =   =   =   =   =   .   =   =
    interrupted                =     =   P/F P/F W   =   =   =   =   =   =
    gates green                .     .   .   .   .   D   .   .   .   .   .
    gates red                  .     .   .   .   .   R/F .   .   .   .   .
    gates cannot run           .     .   .   .   .   =   .   =   .   .   .
    enqueue                    .     .   .   .   .   .   L   =   .   .   .
    changes requested          .     .   .   .   .   .   P   P/. .   .   .
    not chosen                 .     .   .   .   .   .   X   .   .   .   .
    upstream rework            =     B   B   =   =   B   B   B/. -   =   -
    landed                     .     .   .   .   .   .   C   C   =   .   .
    refused as merged          .     .   .   .   .   .   .   P/D .   .   .
    accept                     .     .   .   .   .   .   C   .   =   .   .
    edit text                  =     =   =   =   =   .   .   .   .   =   .
    edit priority              =     =   =   =   =   =   =   =   .   =   .
    widen scope                =     =   =   =   =   .   .   .   .   =   .
    narrow scope               =     =   .   .   .   .   .   .   .   =   .
    release                    .     =   P   P   P   .   .   .   .   .   .
    cancel                     X     X   X   X   X   X   X   X/. .   X   =
    run ended                  =     =   =   P/F =   =   =   =   =   =   =
    retry                      .     =   =   .   P/. =   .   .   .   P/B P/B
    report of an old epoch     k     k   k   k   k   k   k   k   k   k   k
"""
STATES = tuple(Status)
ROWS = {event: row.split()[-len(STATES) :] for event, row in zip(Event, EXPECTED.strip().splitlines(), strict=True)}
LETTER = {status: letter for letter, status in LETTERS.items()}

UNMET = frozenset({"bbbbbbbb"})
Try = Callable[[Task], Change]


def _each(step: Callable[..., Change], *values: object) -> tuple[Try, ...]:
    """One way to try for each value of the step's first argument."""
    return tuple(partial(step, value) for value in values)


def _fail(outcome: Outcome, most: int, task: Task) -> Change:
    return runs.fail(task, task.epoch, outcome, "it broke", AT, most=most)


def _report(event: Event, task: Task) -> Change:
    return runs.report(task, task.epoch, event, AT, head="c0ffee")


def _report_stale(event: Event, task: Task) -> Change:
    return runs.report(task, task.epoch - 1, event, AT, head="c0ffee")


def _report_nothing(most: int, task: Task) -> Change:
    return runs.report_nothing(task, task.epoch, "nothing done", AT, most=most)


def _interrupt(times: int, task: Task) -> Change:
    return runs.interrupt(replace(task, interruptions=times), task.epoch, "engine gone", AT, explained=False)


def _fail_gates(most: int, task: Task) -> Change:
    return runs.fail_gates(task, task.epoch, RED, "log", AT, most=most)


def _bounce(most: int, task: Task) -> Change:
    return rules.bounce(task, "red as merged", AT, most=most)


def _end_run(most: int, task: Task) -> Change:
    return runs.end_run(task, task.run.number if task.run else 1, AT, exit_code=1, most=most)


def _retry(unmet: frozenset[str], task: Task) -> Change:
    return people.retry(replace(task, depends_on=("bbbbbbbb",)), unmet, AT)


def _rescope(before: tuple[str, ...], after: tuple[str, ...], task: Task) -> Change:
    return people.edit(replace(task, file_scope=before), Edit(file_scope=after), AT)


def _lose(if_failed: str, task: Task) -> Change:
    return rules.lose(replace(task, if_failed=if_failed), "bbbbbbbb", "failed", AT)


def _stuck(task: Task) -> Change:
    if task.status is Status.LANDING:
        return rules.hold_queue(task, "the target is red", AT)
    return runs.hold_gates(task, task.epoch, "no such program", AT)


TRIES: dict[Event, tuple[Try, ...]] = {
    Event.DEPEND: (
        lambda task: people.depend(task, ("bbbbbbbb",), UNMET, AT),
        lambda task: people.depend(task, ("bbbbbbbb",), frozenset(), AT),
    ),
    Event.DEPENDENCY_MET: (
        lambda task: rules.meet(task, "bbbbbbbb", AT),
        lambda task: rules.meet(replace(task, blocked_by=(*task.blocked_by, "cccccccc")), "bbbbbbbb", AT),
    ),
    Event.DEPENDENCY_FAILED: _each(_lose, "hold", "run", "skip"),
    Event.ASSIGN: (lambda task: runs.assign(task, samples.attempt(task), AT),),
    Event.DECLINE: (lambda task: runs.decline(task, task.epoch, Hold(kind="scope", text="taken"), AT),),
    Event.START: (lambda task: runs.start(task, task.epoch, AT, pid=1),),
    Event.ASK_LIVE: (lambda task: runs.ask(task, task.epoch, "So?", AT, live=True),),
    Event.ASK_PARKED: (lambda task: runs.ask(task, task.epoch, "So?", AT, live=False),),
    Event.PARK: (lambda task: runs.park(task, AT),),
    Event.ANSWER: (lambda task: people.answer(task, "left", AT),),
    Event.REPORT_CHANGE: _each(_report, Event.REPORT_CHANGE),
    Event.REPORT_RESULT: _each(_report, Event.REPORT_RESULT),
    Event.REPORT_NO_CHANGE: _each(_report, Event.REPORT_NO_CHANGE),
    Event.REPORT_NOTHING: _each(_report_nothing, 1, 3),
    Event.OWN_ERROR: _each(partial(_fail, Outcome.OWN_ERROR), 1, 3),
    Event.DRIVER_ERROR: (lambda task: runs.fail_driver(task, task.epoch, Outcome.DRIVER_ERROR, "no login", AT),),
    Event.LIMIT_CONTEXT: (lambda task: runs.run_out_of_context(task, task.epoch, AT),),
    Event.LIMIT_TIME: _each(partial(_fail, Outcome.TIMEOUT), 1, 3),
    Event.LIMIT_BUDGET: (lambda task: runs.run_out_of_budget(task, task.epoch, "5 USD are spent", AT),),
    Event.TAKE_OVER: (lambda task: people.take_over(task, AT),),
    Event.HOLD: (lambda task: people.hold(task, "not now", AT),),
    Event.INTERRUPT: _each(_interrupt, 0, 4),
    Event.GATES_GREEN: (
        lambda task: runs.pass_gates(task, task.epoch, samples.EVIDENCE, AT, proven=True, awaiting=None),
    ),
    Event.GATES_RED: _each(_fail_gates, 0, 3),
    Event.GATES_STUCK: (_stuck,),
    Event.ENQUEUE: (lambda task: rules.enqueue(task, AT),),
    Event.REQUEST_CHANGES: (lambda task: people.request_changes(task, "more tests", AT),),
    Event.NOT_CHOSEN: (lambda task: rules.not_chosen(task, "dddddddd", AT),),
    Event.UPSTREAM_REWORK: (lambda task: rules.rework(task, "bbbbbbbb", AT),),
    Event.LANDED: (lambda task: rules.landed(task, "c0ffee", AT),),
    Event.BOUNCE: _each(_bounce, 0, 3),
    Event.ACCEPT: (lambda task: people.accept(task, AT),),
    Event.EDIT_TEXT: (lambda task: people.edit(task, Edit(title="Fix it well"), AT),),
    Event.EDIT_PRIORITY: (lambda task: people.edit(task, Edit(priority=5), AT),),
    Event.WIDEN_SCOPE: _each(partial(_rescope, ("a/**",)), ("a/**", "b/**"), ()),
    Event.NARROW_SCOPE: (
        *_each(partial(_rescope, ("a/**", "b/**")), ("a/**",)),
        *_each(partial(_rescope, ()), ("a/**",)),
    ),
    Event.RELEASE: (lambda task: people.release(task, "given to another", AT),),
    Event.CANCEL: (lambda task: people.cancel(task, AT),),
    Event.RUN_ENDED: _each(_end_run, 1, 3),
    Event.RETRY: _each(_retry, frozenset(), UNMET),
    Event.REPORT_STALE: _each(_report_stale, *sorted(runs.REPORTS)),
}


def _mark(attempt: Try, task: Task) -> str:
    """What came of it, in the marks of the table."""
    change = _tried(attempt, task)
    if isinstance(change, NotAllowed):
        assert task.status.value in change.message, "a refusal names the state"
        return "."
    if change.kept:
        assert change.task == task, "what is kept as salvage changes nothing"
        return "k"
    return LETTER[change.task.status]


def _tried(attempt: Try, task: Task) -> Change | NotAllowed:
    try:
        return attempt(task)
    except NotAllowed as error:
        return error


def _agreed(event: Event, state: Status) -> set[str]:
    marks = ROWS[event][STATES.index(state)].split("/")
    if event is Event.RETRY and state is Status.WAITING:
        marks.append("B")  # a dependency that came while it waited holds it at once
    return {LETTER[state] if mark in "=-" else mark for mark in marks}


def _done(event: Event, state: Status) -> set[str]:
    found = samples.every()[state]
    asked = [task for task in found if event is not Event.PARK or not task.question or task.question.live]
    return {_mark(attempt, task) for task in asked for attempt in TRIES[event]}


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name.lower())
def test_an_event_does_in_each_state_exactly_what_the_table_says(event: Event) -> None:
    assert {state: _done(event, state) for state in STATES} == {state: _agreed(event, state) for state in STATES}


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name.lower())
def test_a_row_of_the_code_is_the_row_that_was_agreed(event: Event) -> None:
    for state, marks in zip(STATES, (cell.split("/") for cell in ROWS[event]), strict=True):
        cell = TABLE[event][state]
        targets = {LETTERS[mark] for mark in marks if mark in LETTERS} | ({state} if "=" in marks else set())
        assert set(cell.targets) == targets, state
        assert (cell.keeps, cell.refuses, cell.impossible) == ("k" in marks, "." in marks, "-" in marks), state


@pytest.mark.parametrize("state", STATES)
def test_a_rule_that_comes_late_changes_nothing_and_is_no_error(state: Status) -> None:
    for task in samples.every()[state]:
        for event, late in ((Event.DEPENDENCY_FAILED, _lost), (Event.UPSTREAM_REWORK, _reworked)):
            if TABLE[event][state].impossible:
                assert late(task) == Change(task)


def _lost(task: Task) -> Change:
    return rules.lose(task, "bbbbbbbb", "failed", AT)


def _reworked(task: Task) -> Change:
    return rules.rework(task, "bbbbbbbb", AT)


def test_every_event_has_a_way_to_happen() -> None:
    assert set(TRIES) == set(Event)


def test_what_is_terminal_comes_back_only_by_a_person_or_never() -> None:
    ways = {event for event in Event for state in TERMINAL if TABLE[event][state].targets - TERMINAL}
    assert ways == {Event.RETRY, Event.TAKE_OVER}
