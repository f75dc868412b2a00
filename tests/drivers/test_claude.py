"""Claude Code: how it is started, what its recorded streams mean, and how its ends are judged."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codefleet.core.errors import ConfigError
from codefleet.core.model import ACTIVITY_KINDS
from codefleet.core.progress import Progress
from codefleet.core.settings import BUILT_IN, AgentType
from codefleet.drivers import Installed
from codefleet.drivers.claude import Claude
from codefleet.ports import ChildState, ChildStatus, EndingKind, Order
from codefleet.testing.drivers import STEERING, Ran, read

STREAMS = Path(__file__).parent / "streams"
CLAUDE = Claude(BUILT_IN["claude"])


def stream(name: str, code: int | None = 0, driver: Claude = CLAUDE) -> Ran:
    status = ChildStatus(state=ChildState.DONE, pid=2, code=code)
    return read(driver, (STREAMS / f"{name}.jsonl").read_bytes().splitlines(), status)


# -------------------------------------------------------------------------------------------------------- start


def settings(words: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(words[words.index("--settings") + 1])["permissions"]
    return found


def test_a_session_begins_under_our_id_and_is_gone_on_with(order: Order) -> None:
    fresh, resumed = CLAUDE.command(order).argv, CLAUDE.command(replace(order, resume=True)).argv
    assert fresh[fresh.index("--session-id") + 1] == order.session_id
    assert resumed[resumed.index("--resume") + 1] == order.session_id
    assert "--resume" not in fresh
    assert "--session-id" not in resumed


def test_the_prompt_is_a_message_and_no_argument(order: Order) -> None:
    order = replace(order, prompt="users can't login $(touch x)\n" + "é" * 200_000, message_id="0e0f4f0c-3b0a")
    command = CLAUDE.command(order)
    (message,) = command.messages
    assert json.loads(message)["message"] == {"role": "user", "content": order.prompt}
    assert (json.loads(message)["uuid"],) == command.uuids == ("0e0f4f0c-3b0a",)
    assert command.stdin == "queue"
    assert not any("login" in word for word in command.argv)


def test_every_child_of_a_run_has_its_own_message(order: Order) -> None:
    orders = [order, replace(order, round=2), replace(order, run="abcd2345.2")]
    assert len({CLAUDE.command(one).uuids for one in orders}) == 3


def test_it_may_write_where_it_works_and_call_the_gates(order: Order) -> None:
    order = replace(order, gates=("make test | cat", ("pytest", "-q", "a b")))
    allowed = settings(CLAUDE.command(order).argv)["allow"]
    assert allowed == [
        *BUILT_IN["claude"].allowed_tools,
        f"Edit(/{order.workspace}/**)",
        f"Edit(/{order.artifacts}/**)",
        "Bash(make test | cat)",
        "Bash(sh -c 'make test | cat')",
        "Bash(pytest -q 'a b')",
        "Bash(codefleet agent *)",
    ]


def test_a_path_means_only_itself_and_the_place_it_leads_to(order: Order, tmp_path: Path) -> None:
    (tmp_path / "real [x]").mkdir()
    (tmp_path / "link*").symlink_to(tmp_path / "real [x]")
    allowed = settings(CLAUDE.command(replace(order, workspace=tmp_path / "link*")).argv)["allow"]
    assert rf"Edit(/{tmp_path}/link\*/**)" in allowed
    assert rf"Edit(/{tmp_path}/real \[x\]/**)" in allowed


def test_nothing_is_asked_and_no_settings_of_others_are_read(order: Order) -> None:
    argv = CLAUDE.command(order).argv
    assert argv[argv.index("--permission-mode") + 1] == "dontAsk"
    assert argv[argv.index("--setting-sources") + 1] == ""
    assert "--dangerously-skip-permissions" not in argv


def test_what_is_not_allowed_is_not_even_offered(order: Order) -> None:
    assert settings(CLAUDE.command(order).argv)["deny"] == ["WebFetch", "WebSearch"]
    fetching = Claude(AgentType(driver="claude", allowed_tools=("WebFetch(domain:example.com)",)))
    assert settings(fetching.command(order).argv)["deny"] == ["WebSearch"]


def test_permissions_are_bypassed_only_where_the_configuration_says_so(order: Order) -> None:
    argv = Claude(AgentType(driver="claude", permissions="bypass")).command(order).argv
    assert "--dangerously-skip-permissions" in argv
    assert "--settings" not in argv


@pytest.mark.parametrize("tool", ["Edit", "Write", "NotebookEdit"])
def test_a_tool_that_could_write_anywhere_is_refused(tool: str) -> None:
    with pytest.raises(ConfigError, match=tool) as caught:
        Installed().driver("claude", AgentType(driver="claude", allowed_tools=("Read", tool)))
    assert caught.value.hint
    Claude(AgentType(driver="claude", allowed_tools=("Edit(//data/**)",)))


def test_model_turns_and_flags_are_passed_on(order: Order) -> None:
    driver = Claude(AgentType(driver="claude", max_turns=7, flags=("--effort", "high")))
    argv = driver.command(replace(order, model="opus")).argv
    assert argv[-6:] == ("--model", "opus", "--max-turns", "7", "--effort", "high")
    plain = CLAUDE.command(order).argv
    assert "--model" not in plain
    assert "--max-turns" not in plain


def test_a_command_may_wait_for_an_answer_and_nothing_is_left_in_the_background(order: Order) -> None:
    env = CLAUDE.command(order).env
    assert int(env["BASH_DEFAULT_TIMEOUT_MS"]) > 600_000
    assert int(env["BASH_MAX_TIMEOUT_MS"]) > 600_000
    assert env["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    line = CLAUDE.encode("a\nb\u2028c \ud800 \0", "u")
    assert b"\n" not in line
    assert json.loads(line)["message"]["content"] == "a\nb\u2028c ? \0"


def test_no_message_is_a_command_to_the_agent_itself(order: Order) -> None:
    for line in (CLAUDE.encode("/clear", "u"), *CLAUDE.command(replace(order, prompt="/clear")).messages):
        assert json.loads(line)["message"]["content"] == "\n/clear"


# ------------------------------------------------------------------------------------------------------ streams


@pytest.mark.parametrize("version", ["2.1.197", "2.1.327"])
def test_a_stream_tells_words_calls_files_and_cost(version: str) -> None:
    ran = stream(f"{version}.mix")
    assert ran.ending.kind is EndingKind.OK
    assert [(e.data["role"], e.data["text"]) for e in ran.of("message")] == [
        ("assistant", "I will create the file."),
        ("assistant", "Created hello.txt and committed it."),
    ]
    started = [(e.data["name"], e.data["id"]) for e in ran.of("tool_call") if e.data["status"] == "started"]
    assert [name for name, _ in started] == ["Write", "Read", "Bash", "Edit", "Bash", "Bash"]
    ended = {e.data["id"]: e.data["status"] for e in ran.of("tool_call") if e.data["status"] != "started"}
    assert [ended[id_] for _, id_ in started] == ["ok", "ok", "ok", "ok", "error", "ok"]
    assert [tuple(e.data.values()) for e in ran.of("file_changed")] == [
        ("/repo/hello.txt", "created", 2, 0, "Write"),
        ("/repo/hello.txt", "modified", 1, 1, "Edit"),
    ]
    usage = ran.progress.usage
    assert (usage.input, usage.output, usage.cached) == (7150, 360, 500)
    assert ran.progress.cost_usd == {"2.1.197": 0.046725, "2.1.327": 0.03734}[version]
    assert ran.progress.of_session is (version == "2.1.327")
    assert ran.of("session_started")[0].data["version"] == version


ENDINGS = [
    ("2.1.197.budget", EndingKind.OWN_ERROR, "maximum budget"),
    ("2.1.197.disconnect", EndingKind.DRIVER_ERROR, "Connection closed"),
    ("2.1.197.fail-529", EndingKind.DRIVER_ERROR, "529"),
    ("2.1.197.max-turns", EndingKind.OWN_ERROR, "maximum number of turns"),
    ("2.1.197.overflow", EndingKind.CONTEXT, "too long"),
    ("2.1.197.retry-429", EndingKind.OK, ""),
    ("2.1.197.subagent", EndingKind.OK, ""),
    ("2.1.197.partial", EndingKind.OK, ""),
    ("2.1.327.budget", EndingKind.OWN_ERROR, "maximum budget"),
    ("2.1.327.denied", EndingKind.OK, ""),
    ("2.1.327.disconnect", EndingKind.OK, ""),
    ("2.1.327.fail-400", EndingKind.DRIVER_ERROR, "400"),
    ("2.1.327.fail-401", EndingKind.ACCOUNT_ERROR, "authenticate"),
    ("2.1.327.fail-404", EndingKind.DRIVER_ERROR, "model"),
    ("2.1.327.fail-429", EndingKind.ACCOUNT_ERROR, "429"),
    ("2.1.327.fail-529", EndingKind.DRIVER_ERROR, "529"),
    ("2.1.327.gone", EndingKind.DRIVER_ERROR, "Connection dropped"),
    ("2.1.327.interrupt-tool", EndingKind.OK, ""),
    ("2.1.327.login", EndingKind.ACCOUNT_ERROR, "Not logged in"),
    ("2.1.327.max-turns", EndingKind.OWN_ERROR, "maximum number of turns"),
    ("2.1.327.no-session", EndingKind.OWN_ERROR, "No conversation found"),
    ("2.1.327.overflow", EndingKind.OK, ""),
    ("2.1.327.overflow-for-ever", EndingKind.CONTEXT, "too long"),
    ("2.1.327.permission-stdio", EndingKind.OK, ""),
    ("2.1.327.retry-429", EndingKind.OK, ""),
    ("2.1.327.stdin-followup", EndingKind.OK, ""),
    ("2.1.327.subagent", EndingKind.OK, ""),
]


@pytest.mark.parametrize(("name", "kind", "words"), ENDINGS)
def test_an_end_is_judged_by_its_fields(name: str, kind: EndingKind, words: str) -> None:
    ran = stream(name)
    assert ran.ending.kind is kind
    assert words in ran.ending.reason
    assert set(ran.kinds) <= ACTIVITY_KINDS | STEERING


@pytest.mark.parametrize(("name", "kind", "words"), ENDINGS)
def test_the_words_of_an_end_decide_nothing(name: str, kind: EndingKind, words: str) -> None:
    """All texts of the stream replaced by others: the same verdict."""
    del words
    other = re.sub(r'"(text|result|content)":"(?:[^"\\]|\\.)*"', r'"\1":"zzz"', (STREAMS / f"{name}.jsonl").read_text())
    other = re.sub(r'"errors":\[[^\]]*\]', '"errors":["zzz"]', other)
    status = ChildStatus(state=ChildState.DONE, code=0)
    assert read(CLAUDE, other.encode().splitlines(), status).ending.kind is kind


def test_a_failed_api_call_calls_itself_a_success_and_is_none() -> None:
    line = (STREAMS / "2.1.327.fail-529.jsonl").read_bytes().splitlines()[-1]
    assert json.loads(line)["subtype"] == "success"
    (ended,) = [event for event in CLAUDE.parse(line) if event.kind == "turn_ended"]
    assert (ended.data["ok"], ended.data["error"]) == (False, "api")


def test_a_message_is_known_to_be_taken_by_its_echo() -> None:
    ran = stream("2.1.327.stdin-followup")
    echoes = [event.data["uuid"] for event in ran.of("message_taken")]
    assert len(echoes) == 2
    assert ran.progress.taken == frozenset(echoes)
    assert ran.progress.turns == 2
    first = [event.kind for event in ran.events].index("turn_ended")
    assert [event.kind for event in ran.events[:first]].count("message_taken") == 1


def test_a_turn_is_not_over_while_a_message_waits_for_its_result() -> None:
    lines = (STREAMS / "2.1.327.stdin-followup.jsonl").read_bytes().splitlines()
    echo = [number for number, line in enumerate(lines) if b'"isReplay"' in line][1]
    for code in (0, 1, None):
        cut = read(CLAUDE, lines[: echo + 1], ChildStatus(state=ChildState.DONE, code=code))
        assert cut.progress.pending_turn
        assert cut.ending.kind is EndingKind.OWN_ERROR


def test_a_session_that_goes_on_reports_all_that_it_cost() -> None:
    first, later = stream("2.1.327.denied").progress, stream("2.1.327.resumed").progress
    assert (first.session_id, first.of_session) == (later.session_id, True)
    assert (first.usage.input, later.usage.input) == (3000, 4000)


def test_retries_are_told_with_their_status_and_wait() -> None:
    (event,) = stream("2.1.327.retry-429").of("retry")
    assert event.data == {"status": 429, "after": 2.031, "error": "rate_limit"}


def test_denials_are_told_once_whatever_the_version() -> None:
    ran = stream("2.1.327.denied")
    assert [event.data["tool"] for event in ran.of("permission_denied")] == ["Write", "Bash"]
    assert ran.progress.last_turn["denials"] == ran.progress.denials == 2
    old = {"type": "result", "is_error": False, "permission_denials": [{"tool_name": "Bash", "tool_use_id": "t"}]}
    (event,) = [event for event in CLAUDE.parse(json.dumps(old).encode()) if event.kind == "permission_denied"]
    assert event.data == {"tool": "Bash", "id": "t"}


def test_a_sub_agent_does_not_speak_for_the_agent() -> None:
    ran = stream("2.1.327.subagent")
    assert {event.data["role"] for event in ran.of("message")} == {"assistant", "subagent"}
    assert ran.progress.usage.input == 5000


def test_a_session_that_never_came_up_has_not_started() -> None:
    assert not stream("2.1.327.no-session").progress.started
    assert stream("2.1.327.login").progress.started


# ------------------------------------------------------------------------------------------------- other endings

STARTED = replace(Progress(), started=True, session_id="s")
DONE = ChildStatus(state=ChildState.DONE)


@pytest.mark.parametrize(
    ("progress", "status", "kind"),
    [
        (Progress(), replace(DONE, code=1), EndingKind.DRIVER_ERROR),
        (Progress(), replace(DONE, code=0), EndingKind.DRIVER_ERROR),
        (Progress(), replace(DONE, exec_error="no such file"), EndingKind.DRIVER_ERROR),
        (STARTED, replace(DONE, code=0), EndingKind.OWN_ERROR),
        (STARTED, replace(DONE, code=-9), EndingKind.OWN_ERROR),
        (STARTED, replace(DONE, code=None), EndingKind.OWN_ERROR),
        (Progress(), replace(DONE, code=-2, ended_by="stop"), EndingKind.OWN_ERROR),
        (STARTED, ChildStatus(state=ChildState.RUNNING), EndingKind.OWN_ERROR),
    ],
)
def test_an_end_without_a_result_is_no_success(progress: Progress, status: ChildStatus, kind: EndingKind) -> None:
    ending = CLAUDE.conclude(progress, status, "one\nlast words\n\n")
    assert ending.kind is kind
    assert ending.reason


def test_the_protocols_success_stands_whatever_became_of_the_process() -> None:
    for code in (0, 1, -2, None):
        assert stream("2.1.327.mix", code).ending.kind is EndingKind.OK
