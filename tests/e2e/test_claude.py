"""The real Claude Code in a real fleet, from the command line: what a person sees when all parts work together."""

from __future__ import annotations

import pytest

from codefleet.testing.e2e import AGENTS, Terminal
from codefleet.testing.model_server import ModelServer, Script, edit, say, shell, turn, write

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(
        not (AGENTS / "claude").exists(), reason="@anthropic-ai/claude-code is not installed; run scripts/agents"
    ),
]

HEADINGS = [
    "# Who you are and where you work",
    "# The task",
    "# What this builds on",
    "# What will judge your work",
    "# Your notes, and how to ask",
    "# Committing",
    "# How to end",
]


def test_work_is_done_proven_counted_once_and_built_upon(terminal: Terminal) -> None:
    report = "codefleet agent report --summary 'Said hello.' --next 'Say more.'"
    first = Script(
        "first",
        (
            turn(say("I begin."), write("hello.txt", "hello\nworld\n")),
            turn(edit("hello.txt", "world", "there"), shell("grep -q there hello.txt")),
            turn(shell("git add -A && git commit -q -m 'Say hello'"), write("left.txt", "left\n")),
            turn(shell(report)),
            turn(say("Done.")),
        ),
        key="Greet them",
    )
    second = Script("second", (turn(write("more.txt", "more\n")), turn(say("More is said."))), key="Greet more")
    with ModelServer([second, first]) as model:
        terminal.begin(model.url, gate="grep -q there hello.txt")
        one = terminal.added("Say hello", "-d", "Greet them", "-l", "polite", "-f", "*.txt")
        two = terminal.added("Say more", "-d", "Greet more", "--depends-on", one)
        shown = terminal.works()
    task = terminal.task(one)
    assert (task["status"], task["proven"], task["outcome"], task["attempts"]) == ("completed", True, "accepted", 0)
    assert (task["actual_tokens_used"], task["result_summary"]) == (5 * 1050, "Said hello.")
    [run] = task["runs"]
    assert run["usage"] == {"input": 5000, "output": 250, "cached": 0}
    assert run["cost_usd"] == task["actual_cost_usd"] > 0
    assert {file["path"] for file in run["files"]} == {"hello.txt", "left.txt"}
    assert terminal.git("show", f"{task['branch_name']}:left.txt") == "left\n"
    assert "Say hello" in terminal.git("log", "--format=%s", task["branch_name"])
    calls = [item["data"] for item in terminal.events("tool_call")]
    names = [call["name"] for call in calls if call["status"] == "started"]
    assert names == ["Write", "Edit", "Bash", "Bash", "Write", "Bash", "Write"]
    assert {call["status"] for call in calls} == {"started", "ok"}
    changed = [
        (item["data"]["path"].rpartition("/")[2], item["data"]["change_type"])
        for item in terminal.events("file_changed")
    ]
    assert changed[:3] == [("hello.txt", "created"), ("hello.txt", "modified"), ("left.txt", "created")]
    assert not terminal.events("permission_denied")
    assert "I begin." in shown
    told = model.of("second")[-1].said
    assert [told.find(heading) for heading in HEADINGS] == sorted(told.find(heading) for heading in HEADINGS)
    assert all(told.count(heading) == 1 for heading in HEADINGS)
    assert all(words in told for words in (two, "Say more", "Greet more", one, "Said hello.", "changed: hello.txt"))
    assert "next: Say more." in told
    assert "grep -q there hello.txt" in told
    assert all(words in model.of("first")[0].said for words in ("polite", "*.txt", "result.schema.json"))
    assert terminal.task(two)["status"] == "completed"
    assert terminal.git("ls-tree", "--name-only", terminal.task(two)["branch_name"]).split() == [
        "README.md",
        "codefleet.toml",
        "hello.txt",
        "left.txt",
        "more.txt",
    ]
