"""`start`, `run-single`, `demo`: the fleet at work, seen from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.surfaces.conftest import Person

DEADLINE = 60.0


def script(*steps: dict[str, Any]) -> str:
    """A description whose script the scripted agent does."""
    lines = "\n".join(json.dumps(step) for step in steps)
    return f"```script\n{lines}\n```"


def done(summary: str = "Done.") -> dict[str, Any]:
    return {"result": {"status": "completed", "summary": summary}}


WROTE: list[dict[str, Any]] = [{"write": "a.txt", "text": "hello\n"}, {"say": "I wrote a file"}]
WORK = script(*WROTE, done("Wrote a file."))
SLOW_WORK = script(*WROTE, {"sleep": 0.5}, done("Wrote a file."))


def until(what: Callable[[], bool]) -> None:
    """Wait for something that comes by itself."""
    end = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@contextmanager
def engine(person: Person, *args: str) -> Iterator[subprocess.Popen[str]]:
    """`codefleet start` as a process; ended at once when nobody has ended it."""
    command = [sys.executable, "-m", "codefleet", "start", "--json", *args]
    with subprocess.Popen(
        command, cwd=person.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            until(lambda: process.poll() is not None or person("status", "--json", "-q").data["manager"]["running"])
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=DEADLINE)


def status(person: Person, key: str) -> str:
    return str(person("show", key, "--json").data["status"])


def test_a_task_is_worked_off_and_everything_about_it_can_be_read(person: Person) -> None:
    (person.cwd / "codefleet.toml").write_text('[gates]\ntest = "test -s a.txt"\n')
    person("trust", "--yes")
    key = person.added("Write a file", "-d", SLOW_WORK, "--agent", "scripted")
    said = person("run-single", "--name", "ada", "--until-idle")
    assert said.code == 0, said.err
    assert "task_completed" in said.err
    assert "I wrote a file" in said.err
    shown = person("show", key, "--json").data
    assert (shown["status"], shown["outcome"], shown["proven"]) == ("completed", "accepted", True)
    assert shown["evidence"]["gates"][0]["exit_code"] == 0
    assert [run["agent_id"] for run in shown["runs"]] == ["ada"]
    assert "+hello" in person("task", key, "diff").out
    assert json.loads(person("task", key, "result").out)["summary"] == "Wrote a file."
    assert "I wrote a file" in person("logs", key).out
    assert "I wrote a file" in person("logs", key, "--raw").out
    assert person("logs", key, "-f").out == person("logs", key).out
    assert person("task", key, "plan").code == 0
    assert "engine_started" in person("logs").out
    assert person("log", "1").out.count("\n") == 1
    kinds = [json.loads(line)["kind"] for line in person("events", "--all", "--json").out.splitlines()]
    assert {"task_started", "message", "task_verified", "run_ended"} <= set(kinds)
    assert person.git("show", f"{shown['branch_name']}:a.txt") == "hello"


def test_what_an_agent_said_is_recorded_however_fast_it_was(person: Person) -> None:
    keys = [person.added("Write a file", "-d", WORK, "--agent", "scripted") for _ in range(3)]
    person("start", "--name", "fast", "-n", "3", "--until-idle", "-q")
    for key in keys:
        assert "I wrote a file" in person("logs", key).out


def test_an_idle_fleet_ends_with_a_failure_when_a_task_failed(person: Person) -> None:
    person("config", "set", "limits.attempts=1")
    person.added("Fail", "-d", script({"exit": 3}), "--agent", "scripted")
    assert person("start", "--name", "first", "--until-idle", "-q").code == 1
    assert person("start", "--name", "second", "--until-idle", "-q").code == 0


def test_a_diff_is_reviewed_and_work_without_gates_waits_for_a_person(person: Person) -> None:
    key = person.added("Write a file", "-d", WORK, "--agent", "scripted")
    person("start", "--until-idle", "-q")
    assert "unproven" in person("review").out
    assert "+hello" in person("review", key, "--diff").out
    assert person("review", key, "--approve").code == 0
    assert status(person, key) == "completed"


def test_an_agent_s_question_is_answered_and_the_same_run_goes_on(person: Person) -> None:
    key = person.added(
        "Ask", "-d", script({"ask": "Left or right?"}, {"write": "a", "text": "x"}, done()), "--agent", "scripted"
    )
    with engine(person):
        until(lambda: bool(person("answer", "--json").data))
        assert "Left or right?" in person("answer").out
        assert person("answer", key, "left").code == 0
        until(lambda: status(person, key) == "verified")
    runs = person("show", key, "--json").data["runs"]
    assert len(runs) == 1


def test_a_second_start_is_refused_and_says_who_is_there_but_a_named_one_runs_beside_it(person: Person) -> None:
    person("init", "--home")
    with engine(person) as first:
        said = person("start", "--until-idle", "-q")
        assert said.code == 1
        assert str(first.pid) in said.err
        assert person("start", "--name", "beside", "--until-idle", "-q").code == 0
        assert person("status", "--json").data["manager"]["engines"][0]["pid"] == first.pid


def test_the_first_signal_ends_the_engine_in_peace_and_puts_the_work_back(person: Person) -> None:
    key = person.added("Hang", "-d", script({"write": "half.txt", "text": "x"}, {"hang": True}), "--agent", "scripted")
    with engine(person) as running:
        until(lambda: status(person, key) == "in_progress")
        running.send_signal(signal.SIGINT)
        assert running.wait(DEADLINE) == 0
    shown = person("show", key, "--json").data
    assert (shown["status"], shown["attempts"]) == ("pending", 0)
    assert person("status", "--json").data["manager"]["running"] is False


def test_the_second_signal_ends_at_once_and_the_next_start_goes_on_with_the_work(person: Person) -> None:
    deaf = {"on": "run 1", "hang": True, "ignore": ["TERM", "INT"]}
    steps = script(deaf, {"on": "run 2", "write": "a", "text": "x"}, {"on": "run 2", **done()})
    key = person.added("Be deaf once", "-d", steps, "--agent", "scripted")
    with engine(person) as running:
        until(lambda: "hanging" in person("logs", key, "-q").out)
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        until(lambda: "SIGTERM" in str(running.stderr and running.stderr.readline()))
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE) == 130
    assert person("start", "--name", "next", "--until-idle", "-q").code == 0
    shown = person("show", key, "--json").data
    assert (shown["status"], shown["attempts"], len(shown["runs"])) == ("verified", 0, 2)
    assert shown["runs"][0]["outcome"] == "interrupted"


def test_an_edit_now_interrupts_the_run_and_the_next_one_begins_with_the_change(person: Person) -> None:
    key = person.added("Hang", "-d", script({"hang": True}), "--agent", "scripted")
    with engine(person):
        until(lambda: status(person, key) == "in_progress")
        after = person("edit", key, "--now", "-d", WORK, "--json").data
        assert after["status"] == "pending"
        until(lambda: status(person, key) == "verified")
    shown = person("show", key, "--json").data
    assert (len(shown["runs"]), shown["attempts"]) == (2, 0)


def test_a_screen_that_stays_shows_each_change(person: Person) -> None:
    person("init", "--home")
    commands = [["status", "-w", "--json"], ["tasks", "--all", "-w", "--json"]]
    for args in commands:
        command = [sys.executable, "-m", "codefleet", *args]
        with subprocess.Popen(command, cwd=person.cwd, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            first = json.loads(watching.stdout.readline())
            person.added("A task")
            assert json.loads(watching.stdout.readline()) != first
            watching.send_signal(signal.SIGINT)
            assert watching.wait(DEADLINE) == 130


def test_an_unknown_agent_type_and_a_negative_number_are_refused(person: Person) -> None:
    assert person("start", "--agent", "cloude").code == 2
    assert person("start", "-n", "-1").code == 2
    assert person("run-single").code == 2


def test_only_the_named_project_is_worked_on(person: Person) -> None:
    here = person.added("Here", "-d", WORK, "--agent", "scripted")
    there = person.cwd.parent / "other"
    there.mkdir()
    other = person.added("There", "-d", WORK, "--agent", "scripted", "--project", str(there))
    person("start", "--until-idle", "-q", "--workdir", str(person.cwd))
    assert (status(person, here), status(person, other)) == ("verified", "pending")


def test_events_are_followed_from_another_terminal(person: Person) -> None:
    person("init", "--home")
    command = [sys.executable, "-m", "codefleet", "events", "-f", "--json", "--after", "1"]
    person.added("First")
    with subprocess.Popen(command, cwd=person.cwd, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["data"]["title"] == "First"
        person.added("Second")
        assert json.loads(following.stdout.readline())["data"]["title"] == "Second"
        following.send_signal(signal.SIGINT)
        assert following.wait(DEADLINE) == 130


def test_the_demo_shows_a_fleet_at_work_and_leaves_nothing_when_asked(person: Person) -> None:
    folder = person.cwd.parent / "demo"
    said = person("demo", "--dir", str(folder), "--pace", "0", "--rm", "--json", "-q")
    assert said.code == 0, said.err
    last = json.loads(said.out.splitlines()[-1])["data"]
    tasks = {task["title"]: task for task in last["tasks"]}
    assert {task["status"] for task in tasks.values()} == {"completed"}
    assert all(task["proven"] for task in tasks.values())
    assert tasks["Count lines"]["rounds"] == 1
    assert tasks["Find the longest line"]["question"]["answer"] == "the first one"
    assert len(tasks["Report on a text"]["depends_on"]) == 3
    assert not folder.exists()
    assert not person.home.path.exists()


def test_the_demo_fills_no_folder_that_holds_something(person: Person) -> None:
    said = person("demo", "--dir", str(person.cwd))
    assert said.code == 2
    assert "is not empty" in said.err


@pytest.mark.parametrize("args", [["agent", "ask", "Why?"], ["agent", "report", "--summary", "x"]])
def test_what_is_for_agents_is_refused_outside_of_a_run(person: Person, args: list[str]) -> None:
    said = person(*args)
    assert said.code == 2
    assert said.out == ""
