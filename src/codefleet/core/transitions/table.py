"""Every event in every state: the one table that says what may happen to a task.

A cell names the states that an event may lead to (letters below), or
    =  accepted, the status stays          .  refused: `NotAllowed`, naming the state
    k  kept as salvage, nothing else       -  cannot arise
The functions beside this module decide between a cell's alternatives; none can leave the table, because `Change`s are
made by `move`, which checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from codefleet.core.errors import NotAllowed
from codefleet.core.model import Status, Task

LETTERS: Mapping[str, Status] = {
    "B": Status.BLOCKED,
    "P": Status.PENDING,
    "A": Status.ASSIGNED,
    "R": Status.IN_PROGRESS,
    "W": Status.WAITING,
    "V": Status.VERIFYING,
    "D": Status.VERIFIED,
    "L": Status.LANDING,
    "C": Status.COMPLETED,
    "F": Status.FAILED,
    "X": Status.CANCELLED,
}


class Event(StrEnum):
    """What can happen to a task, in the words that a refusal uses."""

    DEPEND = "change its dependencies"
    DEPENDENCY_MET = "meet a dependency"
    DEPENDENCY_FAILED = "lose a dependency"
    ASSIGN = "assign"
    DECLINE = "decline"
    START = "start"
    ASK_LIVE = "ask while the agent runs"
    ASK_PARKED = "ask after the agent ended"
    PARK = "park the question"
    ANSWER = "answer"
    REPORT_CHANGE = "report a change"
    REPORT_RESULT = "report a result"
    REPORT_NO_CHANGE = "report that no change is needed"
    REPORT_NOTHING = "report nothing"
    OWN_ERROR = "fail by its own fault"
    DRIVER_ERROR = "fail by its driver or account"
    LIMIT_CONTEXT = "run out of context"
    LIMIT_TIME = "run out of time"
    LIMIT_BUDGET = "run out of budget"
    TAKE_OVER = "be taken over"
    HOLD = "be held"
    INTERRUPT = "be interrupted"
    GATES_GREEN = "pass its gates"
    GATES_RED = "fail its gates"
    GATES_STUCK = "wait for gates that cannot run"
    ENQUEUE = "be queued for landing"
    REQUEST_CHANGES = "be sent back"
    NOT_CHOSEN = "lose to another"
    UPSTREAM_REWORK = "lose its upstream to rework"
    LANDED = "land"
    BOUNCE = "be refused as merged"
    ACCEPT = "be accepted"
    EDIT_TEXT = "have its text edited"
    EDIT_PRIORITY = "have its priority edited"
    WIDEN_SCOPE = "have its scope widened"
    NARROW_SCOPE = "have its scope narrowed"
    RELEASE = "be released"
    CANCEL = "be cancelled"
    RUN_ENDED = "have its run ended"
    RETRY = "be tried again"
    REPORT_STALE = "report with an old epoch"


_ROWS = """
                      B    P    A    R    W    V    D    L    C    F    X
DEPEND                B|P  B|P  A|B  =    =    .    .    .    .    =    .
DEPENDENCY_MET        B|P  =    =    =    =    =    =    =    =    =    =
DEPENDENCY_FAILED     B|P|X -   -    -    -    -    -    -    -    -    -
ASSIGN                .    A    .    .    .    .    .    .    .    .    .
DECLINE               .    .    P    .    .    .    .    .    .    .    .
START                 .    .    R    .    .    .    .    .    .    .    .
ASK_LIVE              .    .    .    W    .    .    .    .    .    .    .
ASK_PARKED            .    .    .    W    =    .    .    .    .    .    .
PARK                  .    .    .    .    W    .    .    .    .    .    .
ANSWER                .    .    .    .    R|P  .    .    .    .    .    .
REPORT_CHANGE         k    k    k    V    V|k  k    k    k    k    k    k
REPORT_RESULT         k    k    k    V    V    k    k    k    k    k    k
REPORT_NO_CHANGE      k    k    k    V    V|k  k    k    k    k    k    k
REPORT_NOTHING        k    k    k    P|F  k    k    k    k    k    k    k
OWN_ERROR             .    .    P|F  P|F  P|F  .    .    .    .    .    .
DRIVER_ERROR          .    .    P    P    W    =    =    =    .    .    .
LIMIT_CONTEXT         .    .    .    P    =    =    =    =    =    =    =
LIMIT_TIME            .    .    .    P|F  =    =    =    =    =    =    =
LIMIT_BUDGET          .    .    .    W    =    =    =    =    =    =    =
TAKE_OVER             .    .    .    =    R    .    R    .    .    R    R
HOLD                  =    =    P    =    =    =    =    =    .    =    =
INTERRUPT             =    =    P|F  P|F  W    =    =    =    =    =    =
GATES_GREEN           .    .    .    .    .    D    .    .    .    .    .
GATES_RED             .    .    .    .    .    R|F  .    .    .    .    .
GATES_STUCK           .    .    .    .    .    V    .    =    .    .    .
ENQUEUE               .    .    .    .    .    .    L    =    .    .    .
REQUEST_CHANGES       .    .    .    .    .    .    P    P|.  .    .    .
NOT_CHOSEN            .    .    .    .    .    .    X    .    .    .    .
UPSTREAM_REWORK       =    B    B    =    =    B    B    B|.  -    =    -
LANDED                .    .    .    .    .    .    C    C    =    .    .
BOUNCE                .    .    .    .    .    .    .    P|D  .    .    .
ACCEPT                .    .    .    .    .    .    C    .    =    .    .
EDIT_TEXT             =    =    =    =    =    .    .    .    .    =    .
EDIT_PRIORITY         =    =    =    =    =    =    =    =    .    =    .
WIDEN_SCOPE           =    =    =    =    =    .    .    .    .    =    .
NARROW_SCOPE          =    =    .    .    .    .    .    .    .    =    .
RELEASE               .    =    P    P    P    .    .    .    .    .    .
CANCEL                X    X    X    X    X    X    X    X|.  .    X    =
RUN_ENDED             =    =    =    P|F  =    =    =    =    =    =    =
RETRY                 .    =    =    .    P|.  =    .    .    .    P|B  P|B
REPORT_STALE          k    k    k    k    k    k    k    k    k    k    k
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one event may do in one state."""

    targets: frozenset[Status] = frozenset()
    keeps: bool = False
    """May be kept as salvage without effect."""
    refuses: bool = False
    """May be refused."""
    impossible: bool = False


def _cell(token: str, state: Status) -> Cell:
    marks = token.split("|")
    targets = {LETTERS[mark] for mark in marks if mark in LETTERS} | ({state} if "=" in marks else set())
    return Cell(frozenset(targets), "k" in marks, "." in marks, "-" in marks)


def _parsed(rows: str) -> dict[Event, dict[Status, Cell]]:
    header, *lines = rows.strip().splitlines()
    states = [LETTERS[letter] for letter in header.split()]
    table = {}
    for line in lines:
        name, *tokens = line.split()
        table[Event[name]] = {state: _cell(token, state) for state, token in zip(states, tokens, strict=True)}
    return table


TABLE: Mapping[Event, Mapping[Status, Cell]] = _parsed(_ROWS)


def refusal(task: Task, event: Event, *, because: str = "", hint: str = "") -> NotAllowed:
    """The error that says why not."""
    words = f"task {task.id} is {task.status.value} and cannot {event.value}"
    return NotAllowed(f"{words}: {because}" if because else words, hint=hint)


def allowed(task: Task, event: Event) -> bool:
    """May this event happen now at all (in one of its variants)?"""
    return bool(TABLE[event][task.status].targets)


def admit(task: Task, event: Event, *, hint: str = "") -> Cell:
    """The cell of this event now; `NotAllowed` where the table refuses it. What cannot arise is not refused: a rule
    that comes late does nothing."""
    cell = TABLE[event][task.status]
    if not cell.targets and not cell.keeps and not cell.impossible:
        raise refusal(task, event, hint=hint)
    return cell
