"""What every test gets: one async backend, and a look at what it left behind. And no skip that nobody agreed to."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

AGREED_SKIPS = Path(__file__).with_name("skips.txt")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _cwd(process: Path) -> str:
    try:
        return os.readlink(process / "cwd")  # noqa: PTH115  # a Path would lose the " (deleted)" that may follow
    except OSError:
        return ""


def _alive(process: Path) -> bool:
    state = _read(process / "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in {b"Z", b"X"}


def _belongs(process: Path, folder: str) -> bool:
    """Does a process name this test's folder: in its environment, on its command line, or as where it works?"""
    named = re.compile(re.escape(folder.encode()) + rb"(?![\w.-])")
    words = _read(process / "environ") + b"\0" + _read(process / "cmdline") + b"\0" + _cwd(process).encode()
    return bool(named.search(words))


def _left(folder: str) -> set[str]:
    """Live processes that belong to this test, but for ourselves."""
    others = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name != str(os.getpid())]
    return {process.name for process in others if _belongs(process, folder) and _alive(process)}


LEAVING = 3.0
"""Seconds for a guard that has said its last word to be gone."""


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test: no process of it lives, and the system's temp folder holds nothing new of ours."""
    if not Path("/proc").is_dir():  # pragma: no cover
        yield
        return
    monkeypatch.setenv("CODEFLEET_TEST", str(tmp_path))
    yield
    end = time.monotonic() + LEAVING
    while (left := _left(str(tmp_path))) and time.monotonic() < end:
        time.sleep(0.02)
    assert not left, f"processes left behind: {sorted(left)}"
    stray = [entry.name for entry in Path(tempfile.gettempdir()).glob(f"codefleet-*-{os.getpid()}*")]
    assert not stray, f"temp folders left behind: {stray}"


def _agreed(reason: str) -> bool:
    lines = AGREED_SKIPS.read_text().splitlines()
    return any(re.search(line, reason) for line in lines if line and not line.startswith("#"))


def _reason(report: pytest.TestReport) -> str:
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip is a test that proves nothing: its reason stands in skips.txt, or the whole run has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    reasons = sorted({_reason(report) for report in reporter.stats.get("skipped", [])})
    unexpected = [reason for reason in reasons if not _agreed(reason)]
    for reason in unexpected:
        reporter.write_line(f"\na skip that tests/skips.txt does not list: {reason}", red=True)
    if unexpected and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
