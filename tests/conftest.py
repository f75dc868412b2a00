"""What every test gets: one async backend, and a look at what it left behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _alive(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _marked(marker: bytes) -> set[str]:
    """Live processes that carry this test's marker in their environment, but for ourselves."""
    own = {str(os.getpid())}
    folders = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name not in own]
    return {folder.name for folder in folders if marker in _environ(folder) and _alive(folder)}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test: no process of it lives, and the system's temp folder holds nothing new of ours."""
    if not Path("/proc").is_dir():  # pragma: no cover
        yield
        return
    monkeypatch.setenv("CODEFLEET_TEST", str(tmp_path))
    yield
    left = _marked(f"CODEFLEET_TEST={tmp_path}".encode() + b"\0")
    assert not left, f"processes left behind: {sorted(left)}"
    stray = [entry.name for entry in Path(tempfile.gettempdir()).glob(f"codefleet-*-{os.getpid()}*")]
    assert not stray, f"temp folders left behind: {stray}"
