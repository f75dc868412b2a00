"""A terminal for each test, and a look at what it let out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from codefleet.testing.e2e import SECRETS, Terminal

PROGRAMS = Path(__file__).parents[2] / ".cache" / "agents" / "bin"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """After each test, no secret of the agent is in a fact, a log, an activity or a view."""
    if not (PROGRAMS / "claude").exists():
        pytest.skip("@anthropic-ai/claude-code is not installed; run scripts/agents")
    made = Terminal(tmp_path, PROGRAMS)
    yield made
    assert [place for secret in SECRETS for place in made.leaks(secret)] == []
