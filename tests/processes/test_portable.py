"""The portable way, written for systems other than Linux, keeps what it promises when it is used on Linux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codefleet.testing.processes.contract import ProcessesContract

TOP = Path(__file__).parents[2]
TRIED = "tests/processes/portable.py"
NOT_PROMISED = {
    "test_what_left_the_session_ends_with_the_child": "daemons that left session, parent and environment are not found",
    "test_a_chain_of_forks_is_caught": "what forks faster than one can look is ended with its group, and not counted",
}
"""Behaviour of the contract that needs orphans to come to their guard, and why it is not to be had."""


@pytest.mark.parametrize(
    ("part", "left_out"), [("TestPortable", len(NOT_PROMISED)), ("not TestPortable", 0)], ids=["contract", "deaths"]
)
def test_the_portable_way_keeps_what_it_promises(tmp_path: Path, part: str, left_out: int) -> None:
    names = [f"{TRIED}::TestPortable::{name}" for name in list(NOT_PROMISED)[:left_out]]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", f"--basetemp={tmp_path / 'tried'}"]
    tried = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(f"--deselect={name}" for name in names), "-k", part, TRIED],
        env={**os.environ, "CODEFLEET_TEST_PORTABLE": "1"},
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr


@pytest.mark.parametrize("name", NOT_PROMISED)
def test_what_is_not_promised_is_in_the_contract(name: str) -> None:
    assert hasattr(ProcessesContract, name)
