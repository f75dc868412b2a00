"""The files under `tasks/<id>/`: what the store says, for people and agents to read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.core.layout import Home
from codefleet.core.model import Activity, Fact, Result, Run, Status, Task
from codefleet.engine import views

TASK = Task(
    id="k3v9x2ab",
    project="p",
    title="T",
    status=Status.PENDING,
    created_at=0,
    updated_at=0,
    cwd="/repo/sub",
    agent="claude",
    attempts=2,
)
RUN = Run(
    id="k3v9x2ab.1",
    task_id="k3v9x2ab",
    project="p",
    number=1,
    epoch=1,
    engine="e",
    agent_id="runner-1",
    agent="claude",
    result=Result(status="completed", summary="Füxed."),
)
FACTS = (
    Fact(kind="task_created", at=1_000, by="person", task_id="k3v9x2ab", data={"title": "T"}, position="1"),
    Fact(kind="run_reported", at=3_000, by="e", task_id="k3v9x2ab", run="k3v9x2ab.1", position="2"),
    Fact(kind="task_failed", at=3_000, by="e", task_id="k3v9x2ab", data={"reason": "r"}, position="3"),
)
ACTIVITY = (
    Activity(run="k3v9x2ab.1", n=7, at=2_000, kind="message", data={"role": "assistant", "text": "hi"}),
    Activity(run="k3v9x2ab.1", n=9, at=3_000, kind="tool_call", data={"name": "Bash"}),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def folder(home: Home) -> Path:
    views.write(home, TASK, [RUN], ACTIVITY, FACTS)
    return home.task("k3v9x2ab")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_task_json_says_where_and_by_whom(folder: Path) -> None:
    assert json.loads((folder / "task.json").read_text()) == {"cwd": "/repo/sub", "coder": "claude", "model": None}


def test_task_json_belongs_to_people_once_it_is_there(home: Home, folder: Path) -> None:
    (folder / "task.json").write_text('{"cwd": "/else"}')
    views.write(home, replace(TASK, agent="scripted"), [RUN], ACTIVITY, FACTS)
    assert (folder / "task.json").read_text() == '{"cwd": "/else"}'


def test_events_hold_facts_and_activity_by_time(folder: Path) -> None:
    events = read(folder / "events.jsonl")
    assert [event["kind"] for event in events] == [
        "task_created",
        "message",
        "run_reported",
        "task_failed",
        "tool_call",
    ]
    assert events[0] == {
        "schema_version": 1,
        "position": "1",
        "kind": "task_created",
        "task_id": "k3v9x2ab",
        "run": None,
        "ts": "1970-01-01T00:00:01.000Z",
        "data": {"title": "T", "by": "person"},
    }
    assert events[1]["position"] is None
    assert events[1]["task_id"] == "k3v9x2ab"
    assert events[1]["data"]["n"] == 7


def test_the_tasks_log_has_the_form_of_the_fleets(folder: Path) -> None:
    said = read(folder / "log.jsonl")
    assert [line["event"] for line in said] == ["task_created", "run_reported", "task_failed"]
    assert {"ts", "level", "logger", "event"} <= set(said[0])
    assert said[2]["level"] == "WARNING"


def test_failures_are_a_view_of_the_attempts(folder: Path) -> None:
    assert (folder / ".failures").read_text() == "2\n"


def test_a_runs_result_is_there_as_the_store_has_it(home: Home, folder: Path) -> None:
    said = json.loads((folder / "runs/1/result.json").read_text())
    assert (said["status"], said["summary"]) == ("completed", "Füxed.")


def test_writing_again_touches_nothing_that_is_right(home: Home, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    views.write(home, TASK, [RUN], ACTIVITY, FACTS)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_view_that_was_damaged_is_made_again(home: Home, folder: Path) -> None:
    good = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").write_text("broken")
    (folder / ".failures").unlink()
    views.write(home, TASK, [RUN], ACTIVITY, FACTS)
    assert (folder / "events.jsonl").read_bytes() == good
    assert (folder / ".failures").exists()


def test_a_link_in_the_place_of_a_view_is_replaced_not_followed(home: Home, folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").symlink_to(victim)
    views.write(home, TASK, [RUN], ACTIVITY, FACTS)
    assert victim.read_text() == "mine"
    assert not (folder / "events.jsonl").is_symlink()


def test_stderr_is_a_link_to_what_the_newest_agent_wrote(home: Home, folder: Path) -> None:
    second = replace(RUN, id="k3v9x2ab.2", number=2)
    for run, kind in ((RUN, "01-agent"), (second, "01-setup"), (second, "02-agent"), (second, "03-gate")):
        spool = home.spools(run.id) / kind
        spool.mkdir(parents=True)
        (spool / "err").write_text(f"{run.id} {kind}")
    for _ in range(2):
        views.write(home, TASK, [second, RUN], (), ())
        assert (folder / "log.stderr").read_text() == "k3v9x2ab.2 02-agent"
    views.write(home, TASK, [RUN], (), ())
    assert (folder / "log.stderr").read_text() == "k3v9x2ab.1 01-agent"


def test_a_runs_prompt_and_gates_are_kept_with_it(home: Home) -> None:
    views.keep(home, "k3v9x2ab", 1, "prompt.md", "do it\ud800")
    views.keep_gate(home, "k3v9x2ab", 1, "test", b"1 failed\xff")
    run = home.run("k3v9x2ab", 1)
    assert (run / "prompt.md").read_text() == "do it?"
    assert (run / "gates/test.log").read_bytes() == b"1 failed\xff"


@given(st.text() | st.sampled_from(["../../x", "..", ".", "a/b", "\x00", "x" * 500, ""]))
def test_no_gates_name_leaves_its_folder(gate: str) -> None:
    name = views.gate_file(gate)
    assert Path(name).name == name
    assert name not in {".", ".."}
    assert "\x00" not in name
    assert len(name.encode()) < 255


def test_gates_with_alike_names_have_files_of_their_own() -> None:
    assert views.gate_file("unit") == "unit.log"
    assert len({views.gate_file(name) for name in ("a/b", "a:b", "ä:b", "a_b")}) == 4
