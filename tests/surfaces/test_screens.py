"""What stands on a terminal while the fleet works, and how things are written there."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from codefleet.app import open_fleet
from codefleet.cli import live, words
from codefleet.cli.commands import read
from codefleet.core.model import Agent, Engine, Pause
from codefleet.testing import samples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.surfaces.conftest import Person


async def _picture(person: Person) -> str:
    text = io.StringIO()
    async with open_fleet(person.home, environ=os.environ, cwd=person.cwd) as fleet:
        Console(file=text, width=120, color_system=None).print(await live.picture(fleet))
    return text.getvalue()


async def test_the_picture_shows_who_works_on_what_what_comes_next_and_what_is_paused(person: Person) -> None:
    now = time.time_ns() // 1_000_000
    async with open_fleet(person.home, environ=os.environ, cwd=person.cwd) as fleet:
        for thing in (
            Engine(id="e_1", host="another", pid=1, version="0", slots=2, beat_at=now),
            Agent(id="runner-1", type="scripted", engine="e_1", host="another"),
            Agent(id="runner-2", type="scripted", engine="e_1", host="another"),
            replace(samples.started(samples.pending(title="Fix \x1b[31mred")), assigned_to="runner-1"),
            replace(samples.pending(title="Write it down"), id="bbbbbbbb"),
            Pause(id="agent:scripted", active=True, reason="expired login"),
        ):
            await fleet.store.add(thing)
    lines = (await _picture(person)).splitlines()
    row = next(line for line in lines if line.startswith("runner-1"))
    assert "in progress" in row
    assert "aaaaaaaa" in row
    assert "Fix" in row
    assert "\x1b" not in row
    assert any(line.startswith("runner-2") and "paused" in line for line in lines)
    assert any("next" in line and "Write it down" in line for line in lines)
    assert "paused: agent:scripted: expired login" in lines[-1]


async def test_a_picture_of_an_empty_fleet_has_no_empty_table(person: Person) -> None:
    assert (await _picture(person)).strip() == ""


def test_a_start_on_a_terminal_draws_a_table_and_tells_what_ended(person: Person) -> None:
    steps = '{"write": "a", "text": "x"}\n{"result": {"status": "completed", "summary": "Done."}}'
    key = person.added("Write a file", "-d", f"```script\n{steps}\n```", "--agent", "scripted")
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "codefleet", "start", "--until-idle"]
    environ = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    with subprocess.Popen(command, cwd=person.cwd, env=environ, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while chunk := _read(master):
            shown += chunk
        assert process.wait(60) == 0
    os.close(master)
    text = shown.decode()
    assert "runner-1" in text
    assert key in text
    assert "1 verified" in text
    assert "codefleet review" in text


def test_a_question_is_asked_on_the_terminal_with_what_there_is_to_choose(person: Person) -> None:
    task = samples.waiting(live=False)
    assert task.question is not None
    person.store(replace(task, question=replace(task.question, options=("left", "right"))))
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "codefleet", "answer", task.id]
    with subprocess.Popen(command, cwd=person.cwd, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while b"answer:" not in shown and (chunk := _read(master)):
            shown += chunk
        os.write(master, b"left\n")
        while _read(master):
            pass
        assert process.wait(60) == 0
    os.close(master)
    assert shown.decode().splitlines()[:3] == ["Left or right?", "- left", "- right"]
    assert person("show", task.id, "--json").data["question"]["answer"] == "left"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody holds the other end any more
        return b""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (42.9, "42s"), (187, "3m07s"), (7800, "2h10m"), (277200, "3d5h"), (-5, "0s")]
)
def test_durations_are_written_short(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("called", "found", "program"),
    [
        ("/opt/cf/bin/fleet", True, "fleet"),
        ("/opt/a b/bin/codefleet", False, "'/opt/a b/bin/codefleet'"),
        ("/opt/cf/codefleet/__main__.py", False, f"{sys.executable} -m codefleet"),
    ],
)
def test_what_is_to_be_copied_begins_with_a_program_that_the_shell_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, found: bool, program: str
) -> None:
    for name in ("codefleet", "fleet") if found else ():
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [called])
    assert words.program() == program


def test_an_event_in_words_is_one_line_without_what_says_nothing() -> None:
    data = {
        "head": "c0ffee" * 6 + "beef",
        "usage": {"input": 7, "cached": 0},
        "why": "so it is",
        "by": "e_1",
        "on": None,
    }
    one = {"ts": "2026-01-02T03:04:05.000Z", "kind": "run_ended", "task_id": "a", "run": "a.1", "data": data}
    assert read.told(one)[9:] == 'run_ended          a.1         head=c0ffeec0ffee input=7 why="so it is"'


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("日本", 4), ("é", 1), ("e\u0301", 1), ("🚀", 2)])
def test_text_takes_as_many_columns_as_a_terminal_gives_it(text: str, columns: int) -> None:
    assert words.width(text) == columns


def test_a_table_keeps_its_columns_straight_whatever_stands_in_it() -> None:
    lines = words.table(["A", "B"], [["日本", "x"], ["abcdef", "y"]]).splitlines()
    assert [words.width(line[: line.index(last)]) for line, last in zip(lines, "Bxy", strict=True)] == [8, 8, 8]


def test_a_row_stays_on_a_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    head = ["ID", "TITLE", "NOTE"]
    lines = words.table(head, [["aaaaaaaa", "t" * 50, "n" * 50], ["b", "short", ""]], wide="TITLE").splitlines()
    assert [words.width(line) <= 40 for line in lines] == [True] * 3
    assert lines[1] == f"aaaaaaaa  {'t' * 11}…  {'n' * 15}…"


def test_a_long_text_is_cut_to_its_columns() -> None:
    assert words.cut("abcdef", 4) == "abc…"
    assert words.cut("日本語", 4) == "日…"
    assert words.cut("abc", 3) == "abc"
