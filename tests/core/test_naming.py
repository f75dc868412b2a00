"""Names made from what people write: always usable as a branch and as a folder."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.core import naming


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Fix authentication timeout", "fix-authentication-timeout"),
        ("users can't login $(touch x)", "users-can-t-login-touch-x"),
        ("feature/login", "feature-login"),
        ("Größe ändern", "groe-andern"),
        ("🚀", "task"),
        ("..", "task"),
        ("-- --", "task"),
    ],
)
def test_a_slug_is_made_of_letters_digits_and_dashes(text: str, name: str) -> None:
    assert naming.slug(text) == name


@given(st.text())
def test_a_slug_is_never_empty_nor_long_nor_strange(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_](?:[a-z0-9_-]{0,48}[a-z0-9_])?", naming.slug(text))


@given(st.text(), st.text())
def test_a_branch_of_the_default_template_is_one_that_git_takes(title: str, agent: str) -> None:
    name = naming.branch(
        "{agent}/{task}/{id}", {"agent": naming.slug(agent), "task": naming.slug(title), "id": "k3v9x2mw"}
    )
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_-]*/[a-z0-9_][a-z0-9_-]*/k3v9x2mw", name)


def test_braces_without_a_value_stay_as_they_are() -> None:
    assert naming.branch("{agent}/{what}", {"agent": "claude"}) == "claude/{what}"


def test_a_branch_becomes_one_folder() -> None:
    assert naming.folder("claude/fix-it/k3v9x2mw") == "claude-fix-it-k3v9x2mw"
