"""What a turn or a child that has ended means for its task: decided on structure, never on words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from codefleet.core.model import Expects, Outcome, Result
from codefleet.core.transitions import Event

MOST_SUMMARY = 8 * 1024


class Kind(Enum):
    REPORT = auto()
    ASK = auto()
    OWN = auto()
    DRIVER = auto()
    CONTEXT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    kind: Kind
    outcome: Outcome
    reason: str = ""
    event: Event = Event.REPORT_CHANGE
    result: Result | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that is known when an agent's turn or process is over."""

    expects: Expects
    failed: Outcome | None
    """How it failed by the driver's word, the exit status or a limit; None: it ended well."""
    reason: str = ""
    code_known: bool = True
    changed: bool | None = False
    """Does git show a change? None: there is no git to ask."""
    result: Result | None = None
    """What the agent wrote down as its result."""
    words: str = ""
    """The last that it said."""


SIDE = {Outcome.DRIVER_ERROR: Kind.DRIVER, Outcome.ACCOUNT_ERROR: Kind.DRIVER, Outcome.CONTEXT: Kind.CONTEXT}


def judge(seen: Observed) -> Verdict:
    """An exit status that is lost is decided by the written result and by git."""
    failed = seen.failed
    if failed is Outcome.OWN_ERROR and not seen.code_known and seen.result is not None:
        failed = None
    if failed is not None:
        return Verdict(kind=SIDE.get(failed, Kind.OWN), outcome=failed, reason=seen.reason)
    if seen.result is not None and seen.result.status == "blocked":
        text = seen.result.question or seen.result.summary
        return Verdict(kind=Kind.ASK, outcome=Outcome.QUESTION, reason=text, result=seen.result)
    return _well(seen, seen.result or _salvaged(seen))


def _well(seen: Observed, result: Result | None) -> Verdict:
    if result is None:
        return _nothing("it ended without a result" + ("" if seen.changed else " and changed nothing"))
    if seen.expects is Expects.RESULT:
        return Verdict(kind=Kind.REPORT, outcome=Outcome.REPORTED, event=Event.REPORT_RESULT, result=result)
    if result.status == "completed_no_changes" and not seen.changed:
        return Verdict(kind=Kind.REPORT, outcome=Outcome.NO_CHANGE, event=Event.REPORT_NO_CHANGE, result=result)
    if seen.changed is not False:
        return Verdict(kind=Kind.REPORT, outcome=Outcome.REPORTED, event=Event.REPORT_CHANGE, result=result)
    return _nothing("it says it is done and changed nothing")


def _nothing(reason: str) -> Verdict:
    return Verdict(kind=Kind.OWN, outcome=Outcome.OWN_ERROR, reason=reason)


def _salvaged(seen: Observed) -> Result | None:
    """A result from the agent's last words, where they or git show that there is one."""
    told = seen.words.strip()
    if seen.changed is False and not (told and seen.expects is Expects.RESULT):
        return None
    summary = told[:MOST_SUMMARY] or "(the agent left no summary)"
    return Result(status="completed", summary=summary, salvaged=True)
