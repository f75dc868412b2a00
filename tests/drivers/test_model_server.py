"""The scripted model: the right turn for every request, and faults where they were ordered."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codefleet.testing.model_server import (
    Fault,
    ModelServer,
    Script,
    Tokens,
    ask,
    call,
    edit,
    load,
    read,
    say,
    shell,
    turn,
    write,
)

TOOLS = [{"name": name} for name in ("Bash", "Read", "Edit", "Write")]
Message = dict[str, Any]


class Talk:
    """A conversation as an agent has it: it answers every call and asks again."""

    def __init__(self, url: str, opening: str, session: str = "s") -> None:
        self.address = url.removeprefix("http://")
        self.messages: list[Message] = [{"role": "user", "content": f"<system>\n</system>{opening}"}]
        self.session = session

    def body(self, **more: Any) -> bytes:
        user = json.dumps({"session_id": self.session})
        system = [{"type": "text", "text": "Be good.\n - Primary working directory: /repo/a b\n"}]
        base = {"model": "m-1", "system": system, "messages": self.messages, "tools": TOOLS, "stream": True}
        return json.dumps({**base, "metadata": {"user_id": user}, **more}).encode()

    def post(self, **more: Any) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            connection.request("POST", "/v1/messages?beta=true", self.body(**more))
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def turn(self) -> list[Message]:
        """The blocks of the next turn, which is remembered with a result for each call."""
        answer, data = self.post()
        assert answer.status == 200
        blocks = assembled(data)
        self.messages.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": b["id"], "content": "ok"} for b in blocks if b["type"] == "tool_use"
        ]
        if results:
            self.messages.append({"role": "user", "content": results})
        return blocks


def sent(data: bytes) -> list[Message]:
    """The events of a stream."""
    return [json.loads(part.partition(b"\ndata: ")[2]) for part in data.split(b"\n\n") if part]


def assembled(data: bytes) -> list[Message]:
    """The blocks that a stream adds up to."""
    blocks: list[Message] = []
    for event in sent(data):
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[-1]["json"] += delta.get("partial_json", "")
            blocks[-1]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
    for block in blocks:
        block["input"] = json.loads(block.pop("json") or "{}")
    return blocks


def texts(blocks: list[Message]) -> list[str]:
    return [block["text"] for block in blocks if block["type"] == "text"]


@pytest.fixture
def served() -> Iterator[ModelServer]:
    two = turn(say("I look."), shell("ls"))
    with ModelServer([Script("a", (two, turn(say("first answer")), turn(say("second answer"))))]) as server:
        yield server


def test_operations_are_calls_of_the_tools_that_the_agent_offers() -> None:
    script = Script(
        "all",
        (
            turn(
                write("src/x.py", "a\n"),
                edit("src/x.py", "a", "b"),
                read("/etc/hosts"),
                shell("make test"),
                ask("users can't login?", "a", "b c"),
                call("Agent", {"prompt": "look"}),
                usage=Tokens(input=7, output=3, cache_read=2, cache_write=1),
            ),
        ),
    )
    with ModelServer([script]) as server:
        _, data = Talk(server.url, "do").post()
    blocks = [(block["name"], block["input"]) for block in assembled(data)]
    assert [name for name, _ in blocks] == ["Write", "Edit", "Read", "Bash", "Bash", "Agent"]
    assert blocks[0][1] == {"file_path": "/repo/a b/src/x.py", "content": "a\n"}
    assert blocks[2][1] == {"file_path": "/etc/hosts"}
    asked = "codefleet agent ask 'users can'\"'\"'t login?' --option a --option 'b c'"
    assert blocks[4][1]["command"] == asked
    ending = sent(data)[-2]
    assert ending["delta"]["stop_reason"] == "tool_use"
    assert ending["usage"] == {
        "input_tokens": 7,
        "output_tokens": 3,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 1,
    }


def test_a_turn_with_calls_is_over_with_a_result_and_one_of_words_with_its_delivery(served: ModelServer) -> None:
    talk = Talk(served.url, "do")
    for _ in range(2):
        assert texts(assembled(talk.post()[1])) == ["I look."]
    assert texts(talk.turn()) == ["I look."]
    assert texts(talk.turn()) == ["first answer"]
    assert texts(talk.turn()) == ["second answer"]
    assert texts(talk.turn()) == ["SCRIPT EXHAUSTED"]
    assert [(one.turn, one.attempt) for one in served.of("a")] == [(0, 1), (0, 2), (0, 3), (1, 1), (2, 1), (3, 1)]


def test_a_turn_stays_over_when_the_agent_forgets_its_result(served: ModelServer) -> None:
    talk = Talk(served.url, "do")
    talk.turn()
    talk.turn()
    talk.messages = [{"role": "user", "content": "A summary of what was."}]
    assert texts(talk.turn()) == ["second answer"]


def test_a_new_session_begins_at_the_beginning(served: ModelServer) -> None:
    for session in ("one", "two"):
        talk = Talk(served.url, "do", session)
        assert [texts(talk.turn()) for _ in range(2)] == [["I look."], ["first answer"]]


def test_conversations_are_told_apart_by_their_first_message_and_may_run_at_once() -> None:
    keys = ["alpha", "beta", "gamma", "delta"]
    scripts = [Script(key, tuple(turn(say(f"{key} {n}"), shell("true")) for n in range(5)), key=key) for key in keys]
    said: dict[str, list[str]] = {}

    def one(url: str, key: str) -> None:
        talk = Talk(url, f"work on {key}.", session=key)
        said[key] = [text for _ in range(5) for text in texts(talk.turn())]

    with ModelServer(scripts) as server:
        threads = [threading.Thread(target=one, args=(server.url, key)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == {key: [f"{key} {n}" for n in range(5)] for key in keys}


def test_a_request_without_tools_and_one_for_a_summary_are_no_turns(served: ModelServer) -> None:
    talk = Talk(served.url, "do")
    assert texts(assembled(talk.post(tools=[])[1])) == ["ok"]
    talk.messages.append({"role": "user", "content": "CRITICAL.\nYour task is to create a detailed summary of this."})
    assert "<summary>" in texts(assembled(talk.post()[1]))[0]
    assert served.of("a") == ()
    assert len(served.requests) == 2


def test_an_answer_may_be_whole(served: ModelServer) -> None:
    answer, data = Talk(served.url, "do").post(stream=False)
    assert answer.headers["content-type"] == "application/json"
    assert [block["type"] for block in json.loads(data)["content"]] == ["text", "tool_use"]


def test_a_status_comes_as_often_as_ordered(served: ModelServer) -> None:
    fault = Fault(kind="http", status=429, retry_after=1.5, times=2)
    with ModelServer([Script("f", (turn(say("at last"), fault=fault),))]) as server:
        talk = Talk(server.url, "do")
        for _ in range(2):
            answer, data = talk.post()
            assert (answer.status, answer.headers["retry-after"]) == (429, "1.5")
            assert json.loads(data)["error"]["type"] == "rate_limit_error"
        assert texts(talk.turn()) == ["at last"]
        assert [one.fault for one in server.of("f")] == ["http", "http", ""]


def test_an_overflow_and_garbage_come_in_place_of_the_turn() -> None:
    over, garbage = Fault(kind="overflow"), Fault(kind="garbage")
    with ModelServer([Script("f", (turn(say("one"), fault=over), turn(say("two"), fault=garbage)))]) as server:
        talk = Talk(server.url, "do")
        answer, data = talk.post()
        assert (answer.status, b"prompt is too long" in data) == (400, True)
        talk.turn()
        answer, data = talk.post()
        assert (answer.status, data[:6]) == (200, b"<html>")


@pytest.mark.parametrize("where", ["before", "start", "middle"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_connection_is_dropped_where_ordered(where: Any, stream: bool) -> None:
    fault = Fault(kind="disconnect", where=where)
    with ModelServer([Script("f", (turn(say("one"), fault=fault),))]) as server:
        talk = Talk(server.url, "do")
        with pytest.raises((ConnectionError, http.client.IncompleteRead, http.client.BadStatusLine)):
            talk.post(stream=stream)
        assert texts(talk.turn()) == ["one"]


def test_an_error_may_come_inside_the_stream() -> None:
    with ModelServer([Script("f", (turn(say("one"), fault=Fault(kind="event")),))]) as server:
        talk = Talk(server.url, "do")
        kinds = [event["type"] for event in sent(talk.post()[1])]
        assert (kinds[0], kinds[-1]) == ("message_start", "error")
        assert "message_stop" not in kinds
        assert texts(talk.turn()) == ["one"]


def test_a_stall_lasts_until_it_is_released() -> None:
    with ModelServer([Script("f", (turn(say("one"), fault=Fault(kind="stall", where="before", times=-1)),))]) as server:
        talk = Talk(server.url, "do")
        said: list[str] = []
        thread = threading.Thread(target=lambda: said.extend(texts(talk.turn())))
        thread.start()
        server.wait(lambda model: len(model.of("f")) == 1)
        assert thread.is_alive()
        server.release()
        thread.join(20)
        assert said == ["one"]


def test_what_does_not_happen_is_said() -> None:
    with ModelServer([]) as server, pytest.raises(TimeoutError):
        server.wait(lambda model: bool(model.requests), seconds=0.01)


def test_what_is_not_served_is_not_found(served: ModelServer) -> None:
    talk = Talk(served.url, "do")
    connection = http.client.HTTPConnection(talk.address, timeout=20)
    connection.request("POST", "/v1/embeddings", b"{}")
    assert connection.getresponse().status == 404
    connection.close()


def test_it_runs_from_a_file_and_lists_its_requests(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    turns = [
        [{"say": "hello"}, {"write": "a.txt", "text": "x"}],
        {"do": [{"ask": "Which?", "options": ["a"]}], "usage": {"input": 5}},
        {"do": [{"say": "bye"}], "fault": {"kind": "http", "status": 529}},
    ]
    file.write_text(json.dumps({"scripts": [{"name": "one", "key": "do", "turns": turns}]}))
    (script,) = load(file)
    assert (script.turns[1].usage.input, script.turns[2].fault) == (5, Fault(kind="http", status=529))
    argv = [sys.executable, "-m", "codefleet.testing.model_server", "--script", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert texts(Talk(url, "do it").turn()) == ["hello"]
        with urllib.request.urlopen(url) as answer:
            assert json.load(answer)[0]["script"] == "one"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_an_operation_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"scripts": [{"turns": [[{"dance": True}]]}]}))
    with pytest.raises(ValueError, match="dance"):
        load(file)
