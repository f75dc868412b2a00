"""What the children of a run have used, counted once."""

from __future__ import annotations

import pytest

from codefleet.core.model import Usage
from codefleet.core.progress import Event, Progress, Spent, fold, spent


def child(tokens: int, cost: float | None, *, session: str = "s", of_session: bool = False) -> Progress:
    progress = fold(Progress(), Event("session_started", {"session_id": session}))
    used = {"input": tokens, "output": 0, "cached": 0, "cost_usd": cost, "session": of_session}
    return fold(progress, Event("usage", used))


def test_children_that_report_only_themselves_are_added() -> None:
    assert spent([child(10, 1.0), child(5, 0.5)], {}) == Spent(Usage(input=15), 1.5)


def test_a_session_that_reports_all_of_itself_is_counted_once() -> None:
    children = [child(10, 1.0, of_session=True), child(15, 1.5, of_session=True)]
    assert spent(children, {}) == Spent(Usage(input=15), 1.5)


def test_what_earlier_runs_of_the_session_were_counted_for_is_left_out() -> None:
    before = {"s": Spent(Usage(input=10), 1.0), "other": Spent(Usage(input=99), 9.0)}
    assert spent([child(15, 1.5, of_session=True)], before) == Spent(Usage(input=5), 0.5)


def test_a_child_that_was_killed_before_it_reported_takes_nothing_away() -> None:
    killed = fold(Progress(), Event("session_started", {"session_id": "s"}))
    before = {"s": Spent(Usage(input=10), 1.0)}
    assert spent([killed, child(12, 1.25, of_session=True)], before) == Spent(Usage(input=2), 0.25)


@pytest.mark.parametrize("before", [{}, {"s": Spent(Usage(input=100), 5.0)}])
def test_an_unknown_cost_stays_unknown_and_nothing_is_ever_negative(before: dict[str, Spent]) -> None:
    result = spent([child(10, None, of_session=True)], before)
    assert result.cost_usd is None
    assert result.usage.input in {0, 10}
