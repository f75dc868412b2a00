"""What an agent's output has said so far, folded event by event."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from codefleet.core.model import ACTIVITY_KINDS, Usage
from codefleet.core.progress import STARTED_BY, Event, Progress, fold


def folded(*events: tuple[str, dict[str, Any]]) -> Progress:
    return reduce(fold, (Event(kind, data) for kind, data in events), Progress())


@pytest.mark.parametrize("kind", sorted(ACTIVITY_KINDS))
def test_an_agent_has_started_when_it_did_something_of_its_own(kind: str) -> None:
    assert folded((kind, {})).started == (kind in STARTED_BY)


def test_a_session_is_known_by_the_last_id_and_model_that_were_given() -> None:
    progress = folded(
        ("session_started", {"session_id": "s1", "model": "m1"}), ("session_started", {"session_id": "s2"})
    )
    assert (progress.session_id, progress.model) == ("s2", "m1")


def test_the_last_word_is_the_agents_own_and_not_the_users() -> None:
    progress = folded(
        ("message", {"role": "assistant", "text": "done"}), ("message", {"role": "user", "text": "thanks"})
    )
    assert progress.text == "done"


def test_usage_is_a_total_and_never_added_up() -> None:
    progress = folded(
        ("usage", {"input": 10, "output": 2, "cached": 1, "cost_usd": 0.5}), ("usage", {"input": 25, "output": 4})
    )
    assert progress.usage == Usage(input=25, output=4)
    assert progress.cost_usd == pytest.approx(0.5), "a usage without a price says nothing about the price"


def test_a_turn_that_ended_is_counted_and_leaves_nothing_pending() -> None:
    progress = folded(("turn_ended", {"ok": True, "text": "done"}))
    assert (progress.turns, progress.pending_turn, progress.text) == (1, False, "done")
    assert progress.last_turn == {"ok": True, "text": "done"}


def test_a_turn_without_words_keeps_the_last_thing_said() -> None:
    assert folded(("message", {"role": "assistant", "text": "hm"}), ("turn_ended", {"ok": True})).text == "hm"


def test_a_message_that_was_taken_makes_a_turn_pending_again() -> None:
    progress = folded(("turn_ended", {"ok": True}), ("message_taken", {"uuid": "u1"}))
    assert progress.pending_turn
    assert progress.taken == {"u1"}


def test_denied_permissions_are_counted() -> None:
    assert folded(("permission_denied", {"tool": "Bash"}), ("permission_denied", {"tool": "Write"})).denials == 2


def test_an_event_of_an_unknown_kind_changes_nothing() -> None:
    assert folded(("who knows", {"text": "line 429"})) == Progress()
