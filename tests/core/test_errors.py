"""The tree of errors: complete, and every one of them means something to a person and to a program."""

from __future__ import annotations

import inspect

import pytest

from codefleet.core import errors
from codefleet.core.errors import MEANING, CodeFleetError, meaning

ALL = sorted(
    (kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, CodeFleetError)),
    key=lambda kind: kind.__name__,
)

# name → code, exit code of the command line, HTTP status: what others script against.
PROMISED = {
    "AlreadyRunning": ("already_running", 1, 409),
    "Ambiguous": ("ambiguous", 2, 422),
    "CodeFleetError": ("error", 1, 500),
    "ConfigError": ("config", 2, 422),
    "Corrupt": ("corrupt", 4, 503),
    "Exists": ("exists", 2, 409),
    "Failed": ("failed", 1, 500),
    "GitError": ("git", 1, 500),
    "InvalidInput": ("invalid_input", 2, 422),
    "Missing": ("missing", 3, 404),
    "NoSpace": ("no_space", 1, 507),
    "NotAllowed": ("not_allowed", 2, 409),
    "NotFound": ("not_found", 3, 404),
    "PositionGone": ("position_gone", 3, 410),
    "SchemaMismatch": ("schema_mismatch", 4, 503),
    "Stale": ("stale", 1, 409),
    "StoreError": ("store", 4, 503),
    "StoreUnavailable": ("store_unavailable", 4, 503),
    "Untrusted": ("untrusted", 2, 403),
}


def test_every_error_of_the_tree_has_the_meaning_that_was_promised() -> None:
    found = {kind.__name__: (kind.code, *meaning(kind("it broke"))) for kind in ALL}
    assert found == PROMISED


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in ALL]
    assert len(codes) == len(set(codes))


def test_the_table_of_meanings_names_nothing_else() -> None:
    assert set(MEANING) <= set(ALL)


def test_the_tree_in_the_documentation_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for kind in ALL:
        assert any(line.strip("│├└─ ").split(" ")[0] == kind.__name__ for line in drawn.splitlines()), kind


@pytest.mark.parametrize("kind", ALL)
def test_an_error_says_what_happened_and_what_to_do(kind: type[CodeFleetError]) -> None:
    error = kind("the disk is full", hint="free some space")
    assert (error.message, error.hint, str(error)) == ("the disk is full", "free some space", "the disk is full")
