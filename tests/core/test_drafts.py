"""What a person may ask for: handled exactly, or refused with a hint."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.core.drafts import MOST_TEXT, MOST_TITLE, Draft, alike, checked, checked_edit
from codefleet.core.errors import InvalidInput
from codefleet.core.transitions.people import Edit

SHELL = 'users can\'t login $(touch x); `rm -rf /` && echo "hi"'


@pytest.mark.parametrize("title", [SHELL, "feature/login", "Ünïcödé 🚀 emoji", "--help", "a" * MOST_TITLE])
def test_a_title_is_kept_to_the_letter(title: str) -> None:
    assert checked(Draft(title=f"  {title}\t")).title == title


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": ""},
        {"title": " \t "},
        {"title": "two\nlines"},
        {"title": "a NUL \0 in it"},
        {"title": "half a pair \ud800"},
        {"title": "a" * (MOST_TITLE + 1)},
        {"description": "x" * (MOST_TEXT + 1)},
        {"description": "a NUL \0 in it"},
        {"priority": 0},
        {"priority": 6},
        {"priority": 9},
        {"complexity": "huge"},
        {"expects": "wonders"},
        {"labels": ("a\nb",)},
        {"file_scope": ("/etc/**",)},
        {"file_scope": ("../elsewhere/**",)},
        {"file_scope": ("~/secrets",)},
        {"model": "two\nlines"},
    ],
    ids=str,
)
def test_what_can_not_be_is_refused_in_words(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked(Draft(**{"title": "Fix it", **wrong}))
    assert refused.value.message
    assert len(refused.value.message) < 200, "the refusal does not repeat a megabyte"


@pytest.mark.parametrize("wrong", [Edit(title=""), Edit(priority=9), Edit(file_scope=("/x",)), Edit(description="\0")])
def test_an_edit_obeys_the_same_rules(wrong: Edit) -> None:
    with pytest.raises(InvalidInput):
        checked_edit(wrong)


def test_an_edit_leaves_alone_what_it_does_not_name() -> None:
    assert checked_edit(Edit(title=" New ")) == Edit(title="New")


def test_lists_are_split_at_commas_and_hold_each_thing_once() -> None:
    draft = checked(Draft(title="x", labels=("bug, auth", "bug"), depends_on=("a,b", "a"), file_scope=("src/a,src/b",)))
    assert (draft.labels, draft.depends_on, draft.file_scope) == (("bug", "auth"), ("a", "b"), ("src/a", "src/b"))


def test_a_comma_inside_braces_belongs_to_the_glob() -> None:
    assert checked(Draft(title="x", file_scope=("./src/{a,b}/**,docs/**",))).file_scope == ("src/{a,b}/**", "docs/**")


@given(st.text(max_size=400), st.text(max_size=400))
def test_whatever_is_typed_is_kept_or_refused_and_nothing_else(title: str, description: str) -> None:
    try:
        draft = checked(Draft(title=title, description=description))
    except InvalidInput:
        return
    assert draft.title == title.strip()
    assert draft.description == description
    assert checked(draft) == draft


def test_titles_that_share_most_of_their_words_are_alike() -> None:
    assert alike("Fix the login timeout", "fix login timeout the")
    assert not alike("Fix the login timeout", "Write the manual")
    assert not alike("", "")
