"""The scripted agent does what its script says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from codefleet.core.settings import AgentType
from codefleet.drivers.scripted import Scripted, block
from codefleet.ports import ChildState, ChildStatus, EndingKind, Order
from codefleet.testing.drivers import environment, run

SCRIPTED = Scripted(AgentType(driver="scripted"))


def script(order: Order, *steps: dict[str, object], **more: object) -> Order:
    lines = "\n".join(json.dumps(step) for step in steps)
    return replace(order, description=f"Some words.\n\n```script\n{lines}\n```\nMore words.\n", **more)  # type: ignore[arg-type]


def test_steps_are_done_in_order_and_each_is_an_event(order: Order) -> None:
    ran = run(
        SCRIPTED,
        script(
            order,
            {"write": "src/a.txt", "text": "one\ntwo\n"},
            {"append": "src/a.txt", "text": "three\n"},
            {"write": "b.txt", "text": ""},
            {"delete": "b.txt"},
            {"run": ["sh", "-c", "echo from the child"]},
            {"say": "done"},
            {"usage": {"input": 10, "output": 5, "cached": 2, "cost_usd": 0.5}},
            {"result": {"status": "completed", "summary": "it is done"}},
        ),
    )
    assert (order.workspace / "src/a.txt").read_text() == "one\ntwo\nthree\n"
    assert not (order.workspace / "b.txt").exists()
    assert json.loads((order.artifacts / "result.json").read_text())["summary"] == "it is done"
    changes = [
        (e.data["path"], e.data["change_type"], e.data["lines_added"]) for e in ran.events if e.kind == "file_changed"
    ]
    assert changes == [
        ("src/a.txt", "created", 2),
        ("src/a.txt", "modified", 1),
        ("b.txt", "created", 0),
        ("b.txt", "deleted", 0),
    ]
    assert ran.kinds[0] == "session_started"
    assert ran.kinds[-1] == "turn_ended"
    assert ran.progress.text == "done"
    assert (ran.progress.usage.total, ran.progress.cost_usd) == (17, 0.5)
    assert ran.progress.session_id == order.session_id
    assert "from the child" in ran.stderr
    assert ran.ending.kind is EndingKind.OK


def test_a_commit_is_made_in_the_workspace(order: Order) -> None:
    subprocess.run(["git", "init", "-q", order.workspace], check=True)
    ran = run(SCRIPTED, script(order, {"write": "a", "text": "a"}, {"commit": "Add a"}))
    log = subprocess.run(
        ["git", "-C", order.workspace, "log", "--format=%s"], check=True, capture_output=True, text=True
    )
    assert log.stdout == "Add a\n"
    assert [e.data["status"] for e in ran.events if e.kind == "tool_call"] == ["ok"]


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ({"exit": 0}, EndingKind.OK),
        ({"exit": 3}, EndingKind.OWN_ERROR),
        ({"signal": "SEGV"}, EndingKind.OWN_ERROR),
        ({"fail": "auth"}, EndingKind.ACCOUNT_ERROR),
        ({"fail": "quota"}, EndingKind.ACCOUNT_ERROR),
        ({"fail": "overflow"}, EndingKind.CONTEXT),
        ({"fail": "api"}, EndingKind.DRIVER_ERROR),
        ({"fail": "driver"}, EndingKind.DRIVER_ERROR),
        ({"fail": "turns"}, EndingKind.OWN_ERROR),
        ({"write": "/dev/null/no", "text": ""}, EndingKind.OWN_ERROR),
        ({"dance": True}, EndingKind.OWN_ERROR),
    ],
)
def test_an_end_is_blamed_on_who_caused_it(order: Order, step: dict[str, object], kind: EndingKind) -> None:
    assert run(SCRIPTED, script(order, step)).ending.kind is kind


def test_a_signal_is_seen_as_one(order: Order) -> None:
    assert run(SCRIPTED, script(order, {"signal": "SEGV"})).code == -signal.SIGSEGV


def test_without_a_script_it_says_so(order: Order) -> None:
    ran = run(SCRIPTED, order)
    assert "no script" in ran.ending.reason


def test_the_script_may_be_a_file_of_the_agent_type(order: Order, tmp_path: Path) -> None:
    file = tmp_path / "steps"
    file.write_text('{"say": "from a file"}\n')
    assert run(Scripted(AgentType(driver="scripted", script=str(file))), order).progress.text == "from a file"


def test_a_script_longer_than_an_argument_may_be_is_done_whole(order: Order) -> None:
    text = "é'$(touch x)\"\\" * 30_000
    run(SCRIPTED, script(order, {"write": "a", "text": text}))
    assert (order.workspace / "a").read_text() == text
    assert not (order.workspace / "x").exists()


def test_the_first_block_counts_and_only_a_block_named_script() -> None:
    assert block("```json\n{}\n```\n````script \n{1}\n```\n{2}\n````\n```script\n{3}\n```") == "{1}\n```\n{2}\n"
    assert not block("```script but more\n{}\n```")


def test_lines_belong_to_the_run_and_round_that_they_name(order: Order) -> None:
    steps: list[dict[str, object]] = [
        {"say": "always"},
        {"on": "run 2", "say": "second run"},
        {"on": "round 2", "say": "red"},
        {"on": "round 2 run 2", "say": "red again"},
    ]

    def said(run_: int, round_: int) -> list[str]:
        ran = run(SCRIPTED, script(order, *steps, run=f"abcd2345.{run_}", round=round_, resume=round_ > 1))
        return [e.data["text"] for e in ran.events if e.kind == "message"]

    assert said(1, 1) == ["always"]
    assert said(2, 1) == ["always", "second run"]
    assert said(1, 2) == ["red"]
    assert said(2, 2) == ["red", "red again"]
    assert said(1, 3) == ["always"]


def test_an_interrupted_agent_goes_on_behind_its_last_finished_line(order: Order) -> None:
    steps: tuple[dict[str, object], ...] = (
        {"append": "a", "text": "1"},
        {"on": "run 1", "signal": "KILL"},
        {"append": "a", "text": "2"},
    )
    first = script(order, {"append": "a", "text": "1"}, {"on": "run 1", "hang": True}, {"append": "a", "text": "2"})
    child = subprocess.Popen(
        SCRIPTED.command(first).argv, cwd=order.workspace, env=environment(order), stdout=subprocess.PIPE
    )
    assert child.stdout
    for line in child.stdout:
        if b"hanging" in line:
            break
    child.kill()
    child.wait()
    child.stdout.close()
    run(SCRIPTED, replace(first, run="abcd2345.2", resume=True))
    assert (order.workspace / "a").read_text() == "12"
    run(SCRIPTED, script(order, *steps, run="abcd2345.3", resume=True))
    assert (order.workspace / "a").read_text() == "1212"


def test_a_hanging_agent_ignores_the_signals_that_it_is_told_to(order: Order) -> None:
    asked = script(order, {"hang": True, "ignore": ["TERM", "INT"]})
    child = subprocess.Popen(
        SCRIPTED.command(asked).argv, cwd=order.workspace, env=environment(order), stdout=subprocess.PIPE
    )
    assert child.stdout
    while b"hanging" not in child.stdout.readline():
        pass
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    child.kill()
    child.wait()
    child.stdout.close()


def answer_when_asked(order: Order, answer: dict[str, object]) -> threading.Thread:
    def wait() -> None:
        requests = order.artifacts / ".requests"
        until = time.monotonic() + 20
        while time.monotonic() < until and not list(requests.glob("*.json")):
            time.sleep(0.005)
        fresh = requests / "fresh"
        fresh.write_text(json.dumps(answer))
        fresh.rename(requests / "1.answer.json")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_an_answer_that_comes_in_time_is_taken(order: Order) -> None:
    thread = answer_when_asked(order, {"answer": "blue"})
    ran = run(
        SCRIPTED,
        script(order, {"ask": "Which?", "options": ["blue", "red"]}, {"say": "so be it"}),
        {"CODEFLEET_RUN_TOKEN": "secret"},
    )
    thread.join()
    asked = json.loads((order.artifacts / ".requests/1.json").read_text())
    assert asked == {
        "v": 1,
        "token": "secret",
        "kind": "ask",
        "data": {"text": "Which?", "options": ["blue", "red"], "wait": 600},
    }
    assert [(e.data["role"], e.data["text"]) for e in ran.events if e.kind == "message"] == [
        ("user", "blue"),
        ("assistant", "so be it"),
    ]


def test_a_parked_question_ends_the_turn_and_the_next_run_goes_on_behind_it(order: Order) -> None:
    steps: tuple[dict[str, object], ...] = ({"say": "before"}, {"ask": "Which?", "wait": 0.05}, {"say": "after"})
    ran = run(SCRIPTED, script(order, *steps))
    assert ran.ending.kind is EndingKind.OK
    ran = run(SCRIPTED, script(order, *steps, run="abcd2345.2", resume=True))
    assert [e.data["text"] for e in ran.events if e.kind == "message"] == ["after"]


def test_a_flood_is_as_long_as_it_was_asked_for(order: Order) -> None:
    steps: list[dict[str, object]] = [{"flood": 3_000_000}, {"flood": 3_000_000, "line": True}]
    for step in steps:
        command = SCRIPTED.command(script(order, step))
        done = subprocess.run(
            command.argv, cwd=order.workspace, env=environment(order), capture_output=True, check=True
        )
        longest = max(done.stdout.split(b"\n"), key=len)
        assert done.stdout.count(b"x") >= 2_900_000
        assert (len(longest) == 3_000_000) is bool(step.get("line"))


def test_a_spawned_child_outlives_the_agent_and_is_deaf(order: Order) -> None:
    argv = [
        sys.executable,
        "-S",
        "-I",
        "-c",
        "import os, time; open('pid', 'w').write(str(os.getpid()) + ' '); time.sleep(600)",
    ]
    ran = run(SCRIPTED, script(order, {"spawn": argv, "setsid": True, "ignore": ["TERM"]}))
    assert ran.code == 0
    until = time.monotonic() + 20
    while time.monotonic() < until and not (order.workspace / "pid").exists():
        time.sleep(0.005)
    pid = int(ran.of("tool_call")[0].data["id"].removeprefix("spawn-"))
    ignored = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGTERM - 1))
    os.kill(pid, signal.SIGKILL)
    while (
        time.monotonic() < until and Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ):
        time.sleep(0.005)


def test_the_protocol_decides_where_the_exit_code_was_lost(order: Order) -> None:
    lost = ChildStatus(state=ChildState.DONE, code=None)
    done = run(SCRIPTED, script(order, {"say": "fine"}))
    assert SCRIPTED.conclude(done.progress, lost, "").kind is EndingKind.OK
    cut = run(SCRIPTED, script(order, {"exit": 1}))
    assert "unknown" in SCRIPTED.conclude(cut.progress, lost, "").reason


def test_nothing_in_the_workspace_takes_the_place_of_a_module(order: Order) -> None:
    (order.workspace / "json.py").write_text("raise SystemExit('hijacked')")
    (order.workspace / "codefleet.py").write_text("raise SystemExit('hijacked')")
    ran = run(SCRIPTED, script(order, {"say": "mine"}), {"PYTHONPATH": str(order.workspace)})
    assert ran.progress.text == "mine"


def test_it_runs_as_a_module_too(order: Order) -> None:
    options = [f"task_dir={order.task_dir}", f"artifacts={order.artifacts}", "--", '{"say": "hello"}']
    argv = [sys.executable, "-m", "codefleet.drivers.scripted_agent", *options]
    done = subprocess.run(argv, cwd=order.workspace, capture_output=True, check=True)
    assert b'"text": "hello"' in done.stdout
