"""A terminal for each test, and a look at what it let out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from codefleet.testing.e2e import HINT, KEY, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """After each test, no secret of the agent is in a fact, a log, an activity or a view."""
    made = Terminal(tmp_path)
    yield made
    assert made.leaks(KEY) == []
    assert made.leaks(HINT) == []
