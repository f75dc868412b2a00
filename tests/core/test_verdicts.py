"""What the end of a turn means: by result, exit and git together, never by words."""

from __future__ import annotations

from typing import Any

import pytest

from codefleet.core.model import Expects, Outcome, Result
from codefleet.core.transitions import Event
from codefleet.core.verdicts import Kind, Observed, judge

DONE = Result(status="completed", summary="fixed it")
IDLE = Result(status="completed_no_changes", summary="it was right already")
STUCK = Result(status="blocked", summary="I need a word", question="Left or right?")


def verdict(
    expects: Expects = Expects.CHANGE, failed: Outcome | None = None, **seen: Any
) -> tuple[Kind, Event, Outcome]:
    found = judge(Observed(expects=expects, failed=failed, **seen))
    return found.kind, found.event, found.outcome


REPORTED = (Kind.REPORT, Event.REPORT_CHANGE, Outcome.REPORTED)
OWN = (Kind.OWN, Event.REPORT_CHANGE, Outcome.OWN_ERROR)


@pytest.mark.parametrize(
    ("seen", "meant"),
    [
        ({"result": DONE, "changed": True}, REPORTED),
        ({"result": DONE, "changed": None}, REPORTED),
        ({"result": DONE, "changed": False}, OWN),
        ({"result": None, "changed": False}, OWN),
        ({"result": None, "changed": None}, REPORTED),
        ({"result": None, "changed": True}, REPORTED),
        ({"result": IDLE, "changed": False}, (Kind.REPORT, Event.REPORT_NO_CHANGE, Outcome.NO_CHANGE)),
        ({"result": IDLE, "changed": True}, REPORTED),
        ({"result": STUCK, "changed": True}, (Kind.ASK, Event.REPORT_CHANGE, Outcome.QUESTION)),
    ],
)
def test_a_task_that_expects_a_change_is_judged_by_what_git_shows(
    seen: dict[str, Any], meant: tuple[Kind, Event, Outcome]
) -> None:
    assert verdict(**seen) == meant


@pytest.mark.parametrize(
    ("seen", "meant"),
    [
        ({"result": DONE}, (Kind.REPORT, Event.REPORT_RESULT, Outcome.REPORTED)),
        ({"words": "the answer is 42"}, (Kind.REPORT, Event.REPORT_RESULT, Outcome.REPORTED)),
        ({"words": "  "}, OWN),
    ],
)
def test_a_task_that_expects_a_result_is_judged_by_what_was_said(
    seen: dict[str, Any], meant: tuple[Kind, Event, Outcome]
) -> None:
    assert verdict(Expects.RESULT, **seen) == meant


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (Outcome.OWN_ERROR, Kind.OWN),
        (Outcome.TIMEOUT, Kind.OWN),
        (Outcome.FLOOD, Kind.OWN),
        (Outcome.DRIVER_ERROR, Kind.DRIVER),
        (Outcome.ACCOUNT_ERROR, Kind.DRIVER),
        (Outcome.CONTEXT, Kind.CONTEXT),
    ],
)
def test_a_failure_is_a_failure_whatever_result_was_left(failed: Outcome, kind: Kind) -> None:
    assert verdict(failed=failed, result=DONE, changed=True) == (kind, Event.REPORT_CHANGE, failed)


def test_a_lost_exit_status_is_decided_by_the_result_and_by_git() -> None:
    assert verdict(failed=Outcome.OWN_ERROR, code_known=False, result=DONE, changed=True) == REPORTED
    assert verdict(failed=Outcome.OWN_ERROR, code_known=False, result=DONE, changed=False) == OWN
    assert verdict(failed=Outcome.OWN_ERROR, code_known=False, result=None, changed=True) == OWN


@pytest.mark.parametrize("words", ["line 429", "please log in", "rate limit exceeded", "error: context too long"])
def test_words_decide_nothing(words: str) -> None:
    assert verdict(result=DONE, changed=True, words=words) == REPORTED
    assert verdict(result=None, changed=False, words=words) == OWN


def test_the_question_of_a_blocked_result_is_its_question_else_its_summary() -> None:
    asked = judge(Observed(expects=Expects.CHANGE, failed=None, result=STUCK))
    told = judge(Observed(expects=Expects.CHANGE, failed=None, result=Result(status="blocked", summary="no key")))
    assert (asked.reason, told.reason) == ("Left or right?", "no key")
