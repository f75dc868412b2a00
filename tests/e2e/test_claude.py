"""The real Claude Code in a real fleet, from the command line: what a person sees when all parts work together."""

from __future__ import annotations

import pytest

from codefleet.testing.e2e import KEY, Terminal, environ_of
from codefleet.testing.model_server import Fault, ModelServer, Script, ask, edit, say, shell, turn, write

pytestmark = pytest.mark.agents

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


def test_a_red_gate_is_repaired_in_the_same_session(terminal: Terminal) -> None:
    script = Script(
        "red",
        (
            turn(write("hello.txt", "hello\n")),
            turn(say("Done.")),
            turn(edit("hello.txt", "hello", "hello there")),
            turn(say("Repaired.")),
        ),
    )
    with ModelServer([script]) as model:
        terminal.begin(model.url, gate="cat hello.txt; grep -q there hello.txt || { echo nobody is there; exit 3; }")
        key = terminal.added("Say hello")
        terminal.works()
    task = terminal.task(key)
    [run] = task["runs"]
    assert (task["status"], task["proven"], task["rounds"], task["attempts"]) == ("completed", True, 1, 0)
    assert len(terminal.children(f"{key}.1")) == 1
    assert {request.conversation for request in model.requests} == {run["session_id"]}
    told = model.of("red")[-1].said
    assert (told.count("# The task"), told.count("# A check failed")) == (1, 1)
    assert "# A check failed" not in model.of("red")[1].said
    assert "exit code 3" in told
    assert "nobody is there" in told.partition("# A check failed")[2]
    assert run["usage"] == {"input": 4000, "output": 200, "cached": 0}
    assert [one["data"]["exit_code"] for one in terminal.events("gates_failed")] == [3]


def test_a_question_is_answered_while_the_agent_waits_for_it(terminal: Terminal) -> None:
    script = Script(
        "ask", (turn(ask("Left or right? It's $(urgent)", "left", "right")), turn(write("a", "a")), turn(say("Done.")))
    )
    with ModelServer([script]) as model:
        terminal.begin(model.url)
        key = terminal.added("Go somewhere")
        with terminal.engine("--until-idle") as engine:
            engine.until("task_waiting")
            environ = environ_of(terminal.pid(f"{key}.1"))
            [asked] = terminal("answer", "--json").data
            terminal("answer", key, "straight on")
            assert engine.wait() == 0
    longest_wait_of_ask = 600_000
    assert int(environ["BASH_DEFAULT_TIMEOUT_MS"]) > longest_wait_of_ask
    assert int(environ["BASH_MAX_TIMEOUT_MS"]) > longest_wait_of_ask
    assert "CODEFLEET_HOME" not in environ
    assert asked["text"] == "Left or right? It's $(urgent)"
    assert b"straight on" in (terminal.children(f"{key}.1")[0] / "out").read_bytes()
    task = terminal.task(key)
    assert (task["status"], task["attempts"], len(task["runs"])) == ("verified", 0, 1)
    assert task["question"]["answer"] == "straight on"
    assert len({request.conversation for request in model.requests}) == 1


@pytest.mark.parametrize(
    "asking",
    [
        pytest.param("codefleet agent report --status blocked --summary 'Left or right?'", id="blocked"),
        pytest.param("codefleet agent ask 'Left or right?' --wait 0.1", id="nobody answered in time"),
    ],
)
def test_a_parked_question_is_answered_and_the_session_goes_on(terminal: Terminal, asking: str) -> None:
    script = Script(
        "park",
        (
            turn(write("a", "a")),
            turn(shell(asking)),
            turn(say("I wait.")),
            turn(edit("a", "a", "b")),
            turn(say("Done.")),
        ),
    )
    with ModelServer([script]) as model:
        terminal.begin(model.url)
        key = terminal.added("Go somewhere")
        terminal.works()
        waiting = terminal.task(key)
        [asked] = terminal("answer", "--json").data
        terminal("answer", key, "straight on")
        terminal.works()
    assert (waiting["status"], waiting["question"]["live"], asked["text"]) == ("waiting", False, "Left or right?")
    task = terminal.task(key)
    assert (task["status"], task["attempts"], task["interruptions"]) == ("verified", 0, 0)
    assert [run["outcome"] for run in task["runs"]] == ["question", "reported"]
    assert {run["session_id"] for run in task["runs"]} == {request.conversation for request in model.requests}
    told = model.of("park")[-1].said
    assert (told.count("# The task"), told.count("# You go on with task")) == (1, 1)
    assert "straight on" in told.partition("# You go on with task")[2]
    first, second = task["runs"]
    assert [run["usage"]["input"] for run in (first, second)] == [3000, 2000]
    assert first["cost_usd"] / 3 == pytest.approx(second["cost_usd"] / 2)
    assert task["actual_cost_usd"] == pytest.approx(first["cost_usd"] + second["cost_usd"])
    assert terminal.git("show", f"{task['branch_name']}:a") == "b"


def test_a_busy_model_is_waited_for_at_nobodys_cost(terminal: Terminal) -> None:
    busy = Fault(kind="http", status=429, retry_after=0.1, times=2)
    with ModelServer([Script("busy", (turn(write("a", "a"), fault=busy), turn(say("Done."))))]) as model:
        terminal.begin(model.url)
        key = terminal.added("Be patient")
        terminal.works()
    task = terminal.task(key)
    assert (task["status"], task["attempts"], task["interruptions"], len(task["runs"])) == ("verified", 0, 0, 1)
    assert [one["data"]["status"] for one in terminal.events("retry")] == [429, 429]
    assert [request.fault for request in model.of("busy")] == ["http", "http", "", ""]
    assert terminal("status", "--json").data["pauses"] == []


def test_an_expired_login_pauses_the_account_with_one_question_that_any_answer_lifts(terminal: Terminal) -> None:
    expired = Fault(kind="http", status=401, times=-1)
    with ModelServer([Script("out", (turn(say("never"), fault=expired),))]) as nobody:
        terminal.begin(nobody.url, CLAUDE_CODE_MAX_RETRIES="0")
        keys = {terminal.added("One"), terminal.added("Two")}
        terminal.works()
        paused = terminal("status", "--json").data
        before = terminal("tasks", "--all", "--json").data
        why = [terminal("why", key).out for key in keys]
        tried = len(nobody.requests)
    [asked] = paused["questions"]
    with ModelServer([Script("in", (turn(write("a", "a")), turn(say("Done."))))]) as model:
        terminal.configure(model.url)
        terminal("answer", asked["id"], "I have logged in again")
        terminal.works()
    assert tried == 2
    assert [pause["selector"] for pause in paused["pauses"]] == ["account:claude"]
    assert {task["id"] for task in before} == keys
    assert {(task["status"], task["attempts"], task["interruptions"]) for task in before} == {("pending", 0, 0)}
    assert all("account:claude" in said for said in why)
    after = terminal("tasks", "--all", "--json").data
    assert {(task["status"], task["attempts"]) for task in after} == {("verified", 0)}
    now = terminal("status", "--json").data
    assert (now["pauses"], now["questions"]) == ([], [])


def test_a_key_that_the_agent_lets_slip_is_in_no_record(terminal: Terminal) -> None:
    script = Script(
        "slip",
        (
            turn(say(f"My key is {KEY}."), write("a", "a")),
            turn(ask(f"May I use {KEY}?", KEY, "no")),
            turn(say(f"I used {KEY}.")),
        ),
    )
    with ModelServer([script]) as model:
        terminal.begin(model.url, gate="env")
        key = terminal.added("Use it")
        with terminal.engine("--until-idle") as engine:
            engine.until("task_waiting")
            [asked] = terminal("answer", "--json").data
            terminal("answer", key, "yes")
            assert engine.wait() == 0
    assert (asked["text"], asked["options"]) == ("May I use [secret]?", ["[secret]", "no"])
    assert "My key is [secret]." in engine.shown
    task = terminal.task(key)
    assert (task["status"], task["result_summary"]) == ("completed", "I used [secret].")
    assert "[secret]" in terminal("logs", key).out
