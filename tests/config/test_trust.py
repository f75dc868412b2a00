"""Trust: shown in words, given to exactly what was shown, taken back, and never guessed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.config import trust
from codefleet.config.trust import Asked, State
from codefleet.core.errors import ConfigError
from codefleet.core.layout import Home

if TYPE_CHECKING:
    from tests.config.conftest import Place

PROJECT = """
[setup]
commands = ["uv sync"]
[gates]
test = ["pytest", "-q"]
[gates.lint]
command = "ruff check"
timeout_seconds = 5
[agent]
claude_flags = "--verbose"
[agents.stub]
driver = "command"
command = ["my-agent", "{prompt_file}"]
env = { B = "2", A = "1" }
keep = ["SSH_AUTH_SOCK"]
[landing]
target = "main"
[limits]
attempts = 2
"""


async def test_what_would_be_trusted_is_said_in_words(place: Place) -> None:
    place.write_project(PROJECT)
    place.write_project("Be kind.", ".codefleet/INSTRUCTION.md")
    items = trust.show(place.home, (await place.resolved()).asked)

    assert [item.words for item in items] == [
        'runs in every new workspace: ["uv sync"]',
        'runs as the gate test: ["pytest", "-q"]',
        'runs as the gate lint: "ruff check"',
        "gates.lint.timeout_seconds = 5",
        'Claude is started with "--verbose"',
        'starts the agent type stub by the driver "command"',
        'starts the agent type stub as ["my-agent", "{prompt_file}"]',
        'the agent type stub gets the variables { A = "1", B = "2" }',
        'the agent type stub gets these variables of yours: ["SSH_AUTH_SOCK"]',
        'the branch that work is for: "main"',
        "every agent is told what .codefleet/INSTRUCTION.md says: Be kind.",
    ]
    assert {item.state for item in items} == {State.NEW}


async def test_what_a_terminal_would_hide_is_shown(place: Place) -> None:
    place.write_project('[gates]\ntest = "true \\u001b[2K\u202e; evil"\n')
    place.write_project("Be kind.\x1b[2K\nAnd so on.", ".codefleet/INSTRUCTION.md")
    gate, instruction = trust.show(place.home, (await place.resolved()).asked)

    assert gate.words == 'runs as the gate test: "true \\u001b[2K\\u202e; evil"'
    assert instruction.words.endswith("says: Be kind.\\u001b[2K\nAnd so on.")


async def test_what_changed_since_is_marked(place: Place) -> None:
    place.write_project('[gates]\ntest = "a"\nlint = "b"\n')
    trust.give(place.home, (await place.resolved()).asked)
    place.write_project('[gates]\ntest = "a"\nmore = "c"\n[setup]\ncommands = ["d"]\n')
    items = trust.show(place.home, (await place.resolved()).asked)

    assert {item.key: item.state for item in items} == {
        "gates.test.command": State.TRUSTED,
        "gates.more.command": State.NEW,
        "setup.commands": State.NEW,
        "gates.lint.command": State.NOTHING,
    }


async def test_trust_taken_back_is_gone(place: Place) -> None:
    place.write_project('[gates]\ntest = "a"\n')
    trust.give(place.home, (await place.resolved()).asked)

    assert trust.revoke(place.home, place.project)
    assert (await place.resolved()).state is State.NEW
    assert not trust.revoke(place.home, place.project)


async def test_a_link_to_a_repository_is_that_repository(place: Place, tmp_path: Path) -> None:
    place.write_project('[gates]\ntest = "a"\n')
    trust.give(place.home, (await place.resolved()).asked)
    (tmp_path / "link").symlink_to(place.project)

    assert (await place.configured().project(tmp_path / "link")).trusted


async def test_a_copy_of_a_trusted_repository_is_another_one(place: Place, tmp_path: Path) -> None:
    place.write_project('[gates]\ntest = "a"\n')
    trust.give(place.home, (await place.resolved()).asked)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "codefleet.toml").write_text('[gates]\ntest = "a"\n')

    assert not (await place.configured().project(copy)).trusted


def test_the_file_is_for_its_owner_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    trust.give(home, Asked(repository=tmp_path, values={"gates.test.command": '"secret"'}))

    assert home.trust.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in home.path.iterdir()] == ["trust.json"]
    assert "secret" not in home.trust.read_text()


def test_many_who_trust_at_once_lose_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    repositories = [tmp_path / str(number) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: trust.give(home, Asked(repository=path, values={"a": "1"})), repositories))

    assert len(json.loads(home.trust.read_text())["repositories"]) == 16


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "not json", '{"repositories": {"/a": {}}}', '{"repositories": {"/a": "x"}}', "\udcff"]
)
def test_a_damaged_file_trusts_nothing_and_is_never_rewritten(tmp_path: Path, content: str) -> None:
    home = Home(tmp_path)
    home.trust.write_bytes(content.encode(errors="surrogateescape"))
    before = home.trust.read_bytes()

    for attempt in (trust.state, trust.show, trust.give):
        with pytest.raises(ConfigError, match="is damaged"):
            attempt(home, Asked(repository=tmp_path))
    assert home.trust.read_bytes() == before


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4))
def test_a_digest_does_not_care_for_order_but_for_all_else(values: dict[str, str]) -> None:
    asked = Asked(repository=Path("/x"), values=values)
    turned = Asked(repository=Path("/x"), values=dict(reversed(values.items())))
    more = Asked(repository=Path("/x"), values={**values, "one more": ""})
    moved = {key: value + "!" for key, value in values.items()}

    assert asked.digest == turned.digest
    assert asked.digest != more.digest
    assert not values or asked.digest != Asked(repository=Path("/x"), values=moved).digest
