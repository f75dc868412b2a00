"""When new starts are stopped, and what lifts that."""

from __future__ import annotations

from codefleet.core.model import Pause
from codefleet.core.transitions import At, pauses

AT = At(1_000, "engine")
NEVER = Pause(id="agent:claude")
EXPIRED = "the login has expired"


def struck(*failures: str) -> Pause:
    pause = NEVER
    for failure in failures:
        pause, _ = pauses.strike(pause, failure, AT)
    return pause


def test_one_failure_to_start_pauses_nothing() -> None:
    assert not struck(EXPIRED).active


def test_the_second_equal_failure_pauses_with_one_question() -> None:
    pause, facts = pauses.strike(struck(EXPIRED), EXPIRED, AT)
    assert pause.active
    assert pause.question
    assert (pause.question.id, pause.question.open, pause.questions) == ("q_agent:claude", True, 1)
    assert [fact.kind for fact in facts] == ["paused"]
    assert EXPIRED in pause.question.text


def test_two_different_failures_are_not_the_same_twice() -> None:
    assert not struck(EXPIRED, "an unknown flag", EXPIRED).active


def test_a_third_failure_asks_no_second_question() -> None:
    paused = struck(EXPIRED, EXPIRED)
    assert pauses.strike(paused, EXPIRED, AT) == (paused, ())


def test_a_good_start_forgets_what_failed_before() -> None:
    pause = pauses.clear(struck(EXPIRED), AT)
    assert not pauses.strike(pause, EXPIRED, AT)[0].active


def test_a_good_start_does_not_lift_a_pause() -> None:
    paused = struck(EXPIRED, EXPIRED)
    assert pauses.clear(paused, AT) == paused


def test_any_answer_lifts_the_pause_and_is_kept() -> None:
    lifted, facts = pauses.lift(struck(EXPIRED, EXPIRED), At(2_000, "person"), answer="I logged in")
    assert not lifted.active
    assert lifted.question
    assert (lifted.question.answer, lifted.question.answered_by) == ("I logged in", "person")
    assert [fact.kind for fact in facts] == ["resumed"]
    assert not pauses.strike(lifted, EXPIRED, AT)[0].active, "counting begins anew"


def test_resuming_without_a_word_makes_the_question_moot() -> None:
    lifted, _ = pauses.lift(struck(EXPIRED, EXPIRED), AT)
    assert lifted.question
    assert lifted.question.moot


def test_what_is_not_paused_is_not_lifted() -> None:
    assert pauses.lift(NEVER, AT) == (NEVER, ())


def test_a_pause_put_twice_is_one_fact() -> None:
    pause, facts = pauses.put(NEVER, "lunch", AT, until=5_000)
    assert len(facts) == 1
    assert pauses.put(pause, "lunch", AT, until=5_000) == (pause, ())


def test_a_pause_is_over_when_its_time_has_come_and_never_without_one() -> None:
    timed, _ = pauses.put(NEVER, "lunch", AT, until=5_000)
    endless, _ = pauses.put(NEVER, "for now", AT)
    assert (pauses.over(timed, 4_999), pauses.over(timed, 5_000), pauses.over(endless, 1 << 50)) == (False, True, False)


def test_a_selector_names_what_it_stops() -> None:
    assert (pauses.selector("fleet"), pauses.selector("agent", "claude")) == ("fleet", "agent:claude")
