"""Whose turn it is: priority and age in one number that never changes by waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codefleet.core.model import PRIORITY_STEP, Instant
from codefleet.core.transitions import At, people
from codefleet.core.transitions.people import Edit, rank_of
from codefleet.testing import samples

moments = st.integers(0, 4_102_444_800_000)
priorities = st.integers(1, 5)


@given(moments, priorities, priorities)
def test_of_tasks_made_together_the_higher_priority_goes_first(now: Instant, one: int, other: int) -> None:
    assert (rank_of(now, one) < rank_of(now, other)) == (one > other)


@given(moments, st.integers(1, 1 << 40), priorities)
def test_of_tasks_of_one_priority_the_older_goes_first(now: Instant, younger_by: int, priority: int) -> None:
    assert rank_of(now, priority) < rank_of(now + younger_by, priority)


@given(moments, priorities)
def test_nothing_starves_for_a_week_of_waiting_weighs_as_much_as_a_priority(now: Instant, priority: int) -> None:
    assert rank_of(now, priority) == rank_of(now + PRIORITY_STEP, priority + 1)


@given(moments, moments, priorities)
def test_what_was_asked_for_next_goes_before_everything(now: Instant, other: Instant, priority: int) -> None:
    assert rank_of(now, 1, first=True) < rank_of(other, priority)


@given(moments, st.integers(1, 1 << 40))
def test_of_two_that_were_asked_for_next_the_first_goes_first(now: Instant, later: int) -> None:
    assert rank_of(now, 1, first=True) < rank_of(now + later, 5, first=True)


def test_a_new_priority_is_a_new_rank() -> None:
    task = people.edit(samples.pending(), Edit(priority=5), At(samples.THEN, "person")).task
    assert task.rank == rank_of(task.created_at, 5)
