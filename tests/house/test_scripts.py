"""The scripts say plainly what is missing, and install nothing when all is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a fresh clone as the setup looks at."""
    top = tmp_path / "clone"
    (top / "scripts").mkdir(parents=True)
    shutil.copy(TOP / "scripts/setup", top / "scripts/setup")
    shutil.copytree(TOP / "requirements", top / "requirements")
    shutil.copy(TOP / "pyproject.toml", top / "pyproject.toml")
    return top


def setup(clone: Path, programs: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with nothing on PATH but these programs (name → what the shell does) and the system's own tools."""
    folder = clone / "bin"
    folder.mkdir(exist_ok=True)
    for tool in ("sh", "cat", "sed", "cksum", "tr", "dirname", "head"):
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", clone / "scripts/setup", *arguments],
        env={"PATH": str(folder), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


GIT = "echo git version 2.39.5"


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({}, "git is missing"),
        ({"git": "echo git version 2.30.1"}, "git 2.30 is too old"),
        ({"git": GIT}, "no Python >= 3.11 found"),
        ({"git": GIT, "python3": "exit 1"}, "no Python >= 3.11 found"),
        ({"git": GIT, "python3": 'case "$2" in *ensurepip*) exit 1 ;; esac'}, "install its venv module"),
    ],
)
def test_what_is_missing_on_a_machine_is_said_in_a_sentence(clone: Path, programs: dict[str, str], words: str) -> None:
    done = setup(clone, programs)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_kind_of_setup_is_refused(clone: Path) -> None:
    done = setup(clone, {"git": GIT}, "everything")
    assert (done.returncode, "no kind of setup called 'everything'" in done.stderr) == (1, True)


def test_a_python_that_is_too_old_is_passed_over_for_a_newer_one(clone: Path) -> None:
    old = 'case "$2" in *version_info*) exit 1 ;; esac'
    new = 'case "$1" in -m) echo "made by $0"; exit 1 ;; --version) echo Python 3.12.1 ;; esac'
    done = setup(clone, {"git": GIT, "python3": old, "python3.12": new})
    assert "making .venv with Python 3.12.1" in done.stderr


@pytest.mark.parametrize("script", sorted((TOP / "scripts").iterdir()), ids=lambda script: script.name)
def test_a_script_can_be_run_and_says_what_it_is_for(script: Path) -> None:
    assert os.access(script, os.X_OK)
    first, second = script.read_text().splitlines()[:2]
    assert first in {"#!/bin/sh", "#!/usr/bin/env python3"}
    assert second.startswith(("# ", '"""'))
