"""Whatever an agent prints, a parser gives events that can be folded and stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefleet.core.model import ACTIVITY_KINDS
from codefleet.core.progress import Progress, fold
from codefleet.core.settings import AgentType
from codefleet.drivers.activity import TEXT_LIMIT
from codefleet.drivers.claude import Claude
from codefleet.drivers.command import CommandLine
from codefleet.drivers.scripted import Scripted
from codefleet.ports import ChildState, ChildStatus, Driver
from codefleet.testing.drivers import STEERING

DRIVERS: tuple[Driver, ...] = (
    Claude(AgentType(driver="claude")),
    CommandLine(AgentType(driver="command", command=("x",))),
    Scripted(AgentType(driver="scripted")),
)
LINES = [
    line for file in sorted((Path(__file__).parent / "streams").iterdir()) for line in file.read_bytes().splitlines()
]

KEYS = st.sampled_from(
    "type subtype role text usage message content is_error result id name input session_id model uuid isReplay error "
    "modelUsage total_cost_usd permission_denials tool_use_result structuredPatch lines filePath output cost_usd path "
    "change_type lines_added retry_delay_ms terminal_reason api_error_status result_index inputTokens ok".split()
)
WORDS = st.sampled_from(
    [*sorted(ACTIVITY_KINDS | STEERING), "system", "assistant", "user", "result", "init", "tool_use", "api_retry"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    WORDS,
    st.just("\ud800"),
    st.just(10**400),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=8)


def check(driver: Driver, line: bytes) -> None:
    progress = Progress()
    for event in driver.parse(line):
        assert event.kind in ACTIVITY_KINDS | STEERING
        json.dumps(event.data, allow_nan=False, ensure_ascii=False).encode()
        progress = fold(progress, event)
    for code in (0, 1, None):
        assert driver.conclude(progress, ChildStatus(state=ChildState.DONE, code=code), "").kind


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
class TestAnyOutput:
    @settings(max_examples=50)
    @given(line=st.binary(max_size=200))
    def test_bytes(self, driver: Driver, line: bytes) -> None:
        check(driver, line)

    @settings(max_examples=60)
    @given(value=OBJECTS)
    def test_objects_with_the_right_words_in_the_wrong_places(self, driver: Driver, value: dict[str, Any]) -> None:
        check(driver, json.dumps(value).encode())

    @settings(max_examples=60)
    @given(data=st.data())
    def test_real_lines_cut_and_changed(self, driver: Driver, data: st.DataObject) -> None:
        line = data.draw(st.sampled_from(LINES))
        check(driver, line[: data.draw(st.integers(0, len(line)))])
        value = json.loads(line)
        value[data.draw(st.sampled_from(sorted(value)))] = data.draw(VALUES)
        check(driver, json.dumps(value).encode())

    def test_long_texts_are_cut(self, driver: Driver) -> None:
        for line in (b"x" * 100_000, json.dumps({"type": "message", "text": "y" * 100_000}).encode()):
            for event in driver.parse(line):
                assert len(json.dumps(event.data)) < TEXT_LIMIT + 1000
