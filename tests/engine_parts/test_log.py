"""The fleet's log: for programs a line of JSON, for people a line of words, for nobody a secret."""

from __future__ import annotations

import io
import json
import logging
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from codefleet.core.layout import Home
from codefleet.engine import log
from codefleet.engine.scrub import Scrubber

LOGGER = logging.getLogger("codefleet.test")
SECRET = "correct horse battery"
DAY = 24 * 3600


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def lines(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(home.logging.iterdir()) for line in file.read_text().splitlines()]


def record(event: str, at: float) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": event, "levelno": logging.INFO, "levelname": "INFO", "name": "codefleet"})
    made.created = at
    return made


def fail(text: str) -> None:
    raise ValueError(text)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_line_is_one_json_object_with_its_fields(home: Home) -> None:
    with log.opened(home, "INFO", scrubber=Scrubber()):
        LOGGER.info("task_assigned", extra={"task_id": "k3v9", "run": "k3v9.1", "path": Path("/x"), "line": "a\nb"})
    [said] = lines(home)
    datetime.fromisoformat(said.pop("ts"))
    assert said == {
        "level": "INFO",
        "logger": "codefleet.test",
        "event": "task_assigned",
        "task_id": "k3v9",
        "run": "k3v9.1",
        "path": "/x",
        "line": "a\nb",
    }


def test_the_file_is_named_by_the_utc_date_and_closed_to_others(home: Home) -> None:
    with log.opened(home, "INFO", scrubber=Scrubber()) as file:
        file.emit(record("late", datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC).timestamp()))
        file.emit(record("early", datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC).timestamp()))
    first, second = sorted(home.logging.iterdir())
    assert (first.name, second.name) == ("fleet-2026-03-01.jsonl", "fleet-2026-03-02.jsonl")
    assert [line["event"] for line in lines(home)] == ["late", "early"]
    assert stat.S_IMODE(first.stat().st_mode) == 0o600


def test_files_are_kept_for_14_days_and_nothing_else_is_touched(home: Home) -> None:
    home.logging.mkdir()
    for name in ("fleet-2026-02-14.jsonl", "fleet-2026-02-15.jsonl", "fleet-notes.jsonl", "mine.txt"):
        (home.logging / name).touch()
    with log.opened(home, "INFO", scrubber=Scrubber()) as file:
        file.emit(record("now", datetime(2026, 3, 1, tzinfo=UTC).timestamp()))
    assert {one.name for one in home.logging.iterdir()} == {
        "fleet-2026-02-15.jsonl",
        "fleet-2026-03-01.jsonl",
        "fleet-notes.jsonl",
        "mine.txt",
    }


def test_lines_below_the_level_are_not_written(home: Home) -> None:
    with log.opened(home, "WARNING", scrubber=Scrubber()):
        LOGGER.info("quiet")
        LOGGER.warning("loud")
    assert [line["event"] for line in lines(home)] == ["loud"]


def test_no_secret_is_written_in_any_part_of_a_line(home: Home) -> None:
    terminal = io.StringIO()
    with log.opened(home, "INFO", scrubber=Scrubber([SECRET]), terminal=terminal):
        try:
            fail(SECRET)
        except ValueError:
            LOGGER.exception("failed with %s", SECRET, extra={"argv": ["--key", SECRET]})
    text = "".join(file.read_text() for file in home.logging.iterdir()) + terminal.getvalue()
    assert "failed with [secret]" in text
    assert SECRET not in text


def test_people_see_the_same_line_in_words(home: Home) -> None:
    terminal = io.StringIO()
    with log.opened(home, "INFO", scrubber=Scrubber(), terminal=terminal):
        LOGGER.info("task_assigned", extra={"task_id": "k3v9", "why": "two words"})
        LOGGER.warning("disk_waits")
    first, second = terminal.getvalue().splitlines()
    assert first[8:] == ' task_assigned  task_id=k3v9 why="two words"'
    assert second[8:] == " WARNING disk_waits"


def test_an_exception_is_told_to_people_in_a_line_and_to_the_file_whole(home: Home) -> None:
    terminal = io.StringIO()
    with log.opened(home, "INFO", scrubber=Scrubber(), terminal=terminal):
        try:
            fail("no\nway")
        except ValueError:
            LOGGER.exception("failed")
    assert len(terminal.getvalue().splitlines()) == 1
    assert "Traceback" not in terminal.getvalue()
    assert "Traceback" in lines(home)[0]["traceback"]


def test_what_an_agent_wrote_can_not_steer_a_terminal(home: Home) -> None:
    terminal = io.StringIO()
    with log.opened(home, "INFO", scrubber=Scrubber(), terminal=terminal):
        LOGGER.info("said", extra={"text": "\x1b[2Jgone\r\nforged"})
    assert "\x1b" not in terminal.getvalue()
    assert len(terminal.getvalue().splitlines()) == 1


def test_two_engines_append_to_one_file(home: Home) -> None:
    one, two = (log.DailyFile(home.logging, Scrubber()) for _ in range(2))
    for n in range(20):
        (one, two)[n % 2].emit(record(f"line {n}", 20_000 * DAY))
    one.close()
    two.close()
    assert [line["event"] for line in lines(home)] == [f"line {n}" for n in range(20)]


def test_a_log_that_can_not_be_written_is_said_once_and_stops_nothing(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.logging.write_text("a file where the folder should be")
    with log.opened(home, "INFO", scrubber=Scrubber()):
        LOGGER.info("one")
        LOGGER.info("two")
    assert capsys.readouterr().err.count("can not be written") == 1


def test_a_closed_terminal_stops_nothing(home: Home) -> None:
    terminal = io.StringIO()
    terminal.close()
    with log.opened(home, "INFO", scrubber=Scrubber(), terminal=terminal):
        LOGGER.info("one")
    assert [line["event"] for line in lines(home)] == ["one"]


def test_nothing_stays_configured_or_open_afterwards(home: Home) -> None:
    root, before = logging.getLogger("codefleet"), open_files()
    state = (list(root.handlers), root.level, root.propagate)
    with log.opened(home, "DEBUG", scrubber=Scrubber()):
        LOGGER.info("one")
    assert (root.handlers, root.level, root.propagate) == state
    assert open_files() == before
