"""The portable way, written for systems other than Linux, keeps what it promises when it is used on Linux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codefleet.testing.processes.contract import ProcessesContract

TRIED = Path(__file__).with_name("portable.py")
NOT_PROMISED = {
    "test_what_left_the_session_ends_with_the_child": "daemons that left session, parent and environment are not found",
    "test_a_chain_of_forks_is_caught": "what forks faster than one can look is ended with its group, and not counted",
}
"""Behaviour of the contract that needs orphans to come to their guard, and why it is not to be had."""


def test_the_portable_way_keeps_what_it_promises(tmp_path: Path) -> None:
    left_out = [f"--deselect={TRIED}::TestPortable::{name}" for name in NOT_PROMISED]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", f"--rootdir={TRIED.parents[2]}"]
    tried = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--basetemp={tmp_path / 'tried'}", *left_out, str(TRIED)],
        env={**os.environ, "CODEFLEET_TEST_PORTABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert f"{len(NOT_PROMISED)} deselected" in tried.stdout


@pytest.mark.parametrize("name", NOT_PROMISED)
def test_what_is_not_promised_is_in_the_contract(name: str) -> None:
    assert hasattr(ProcessesContract, name)
