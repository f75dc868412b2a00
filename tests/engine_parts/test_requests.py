"""How an agent asks and the fleet answers, by files alone: both sides, their races and their deaths."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefleet.engine import artifacts, requests

TOKEN = "5eed" * 8
DIGEST = requests.digest(TOKEN)
LONG = 60.0

ASKER = "import os, sys; from codefleet.engine import requests; code, text = requests.ask(os.environ, sys.argv[1], sys.argv[3:], float(sys.argv[2])); print(text); sys.exit(code)"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".requests"


@pytest.fixture
def environ(home: Path) -> Mapping[str, str]:
    return {"CODEFLEET_ARTIFACT_DIR": str(home), "CODEFLEET_RUN_TOKEN": TOKEN}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def asker(environ: Mapping[str, str], text: str = "Which?", wait: float = LONG) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", ASKER, text, str(wait)]
    return subprocess.Popen(argv, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True)


async def arrived(folder: Path, count: int = 1) -> list[requests.Request]:
    with anyio.fail_after(30):
        while len(found := requests.pending(folder)) < count:  # noqa: ASYNC110  another process writes them
            await anyio.sleep(0.01)
    return found


def say(folder: Path, name: str, document: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))


def good(**change: object) -> dict[str, object]:
    return {"v": 1, "token": TOKEN, "kind": "ask", "data": {"text": "Which?", "options": [], "wait": 5}, **change}


async def test_an_answer_reaches_the_agent_that_asked(
    folder: Path, environ: Mapping[str, str], pool: ThreadPoolExecutor
) -> None:
    asked: Future[tuple[int, str]] = pool.submit(requests.ask, environ, "Which?", ["a", "b"], LONG)
    [request] = await arrived(folder)
    assert (request.kind, request.data["text"], request.data["options"]) == ("ask", "Which?", ["a", "b"])
    assert requests.matches(request, DIGEST)
    assert requests.reply(folder, request, {"answer": "a\nand more"})
    assert asked.result(30) == (0, "a\nand more")
    assert requests.pending(folder) == []


@pytest.mark.parametrize(("said", "code"), [({"parked": True}, 1), ({"refused": "the token is old"}, 2)])
async def test_a_parked_or_refused_question_ends_the_wait(
    folder: Path, environ: Mapping[str, str], pool: ThreadPoolExecutor, said: dict[str, object], code: int
) -> None:
    asked = pool.submit(requests.ask, environ, "Which?", (), LONG)
    [request] = await arrived(folder)
    requests.reply(folder, request, said)
    assert asked.result(30)[0] == code


def test_a_tokens_digest_is_all_that_its_run_needs_to_keep() -> None:
    token, digest = requests.new_token()
    assert len(token) == 32
    assert requests.digest(token) == digest
    assert requests.new_token()[0] != token


async def test_two_askers_never_share_a_number(
    folder: Path, environ: Mapping[str, str], pool: ThreadPoolExecutor
) -> None:
    asked = {n: pool.submit(requests.ask, environ, f"question {n}", (), LONG) for n in range(4)}
    for request in await arrived(folder, 4):
        requests.reply(folder, request, {"answer": request.data["text"]})
    for n, one in asked.items():
        assert one.result(30) == (0, f"question {n}")


def test_an_asker_that_waited_in_vain_withdraws_so_that_a_late_answer_is_not_lost_unseen(
    folder: Path, environ: Mapping[str, str]
) -> None:
    assert requests.ask(environ, "Which?", (), 0)[0] == 1
    assert requests.pending(folder) == []
    late = requests.Request(number=1)
    assert not requests.reply(folder, late, {"answer": "a"})
    assert requests.gave_up(folder, late)


async def test_a_killed_asker_is_known_to_be_gone(folder: Path, environ: Mapping[str, str]) -> None:
    with asker(environ) as process:
        [request] = await arrived(folder)
        assert not requests.gave_up(folder, request)
        process.kill()
        process.wait(30)
        assert requests.gave_up(folder, request)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_makes_an_asker_withdraw(
    folder: Path, environ: Mapping[str, str], number: signal.Signals
) -> None:
    with asker(environ) as process:
        [request] = await arrived(folder)
        process.send_signal(number)
        assert process.wait(30) == 1
        assert requests.gave_up(folder, request)
        assert not requests.reply(folder, request, {"answer": "a"})


async def test_an_asker_survives_the_death_of_its_engine(folder: Path, environ: Mapping[str, str]) -> None:
    with asker(environ) as process:
        [before] = await arrived(folder)
        [after] = requests.pending(folder)
        assert after == before, "the next engine finds the same request"
        assert not requests.gave_up(folder, after)
        requests.reply(folder, after, {"answer": "yes"})
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "yes\n")


def test_only_the_first_answer_counts(folder: Path) -> None:
    say(folder, "1.json", good())
    [request] = requests.pending(folder)
    assert requests.reply(folder, request, {"answer": "first"})
    assert not requests.reply(folder, request, {"answer": "second"})
    assert json.loads((folder / "1.answer.json").read_text())["answer"] == "first"


def test_there_is_nothing_pending_where_nothing_was_asked(folder: Path) -> None:
    assert requests.pending(folder) == []
    folder.mkdir()
    assert requests.pending(folder) == []


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], "\ud800"], ids=["none", "short", "cut", "broken"])
def test_a_wrong_token_matches_nothing(folder: Path, token: str) -> None:
    say(folder, "1.json", good(token=token))
    [request] = requests.pending(folder)
    assert not requests.matches(request, DIGEST)


def test_no_token_matches_a_run_that_has_none(folder: Path) -> None:
    say(folder, "1.json", good(token=""))
    [request] = requests.pending(folder)
    assert not requests.matches(request, "")


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[" * 100_000,
        [],
        good(v=2),
        good(kind="rm"),
        good(kind=["ask"]),
        good(token=7),
        good(data=[]),
        good(data={}),
        good(data={"text": "  "}),
        good(data={"text": "x", "options": "a"}),
        good(data={"text": "x", "wait": "long"}),
        good(data={"text": "x", "wait": float("nan")}),
        good(padding="x" * (1 << 20)),
    ],
    ids=[f"garbage{n}" for n in range(15)],
)
def test_garbage_is_refused_and_can_be_answered(folder: Path, document: object) -> None:
    say(folder, "1.json", document)
    [request] = requests.pending(folder)
    assert request.refused
    assert not requests.matches(request, requests.digest(""))
    assert requests.reply(folder, request, {"refused": request.refused})
    assert requests.pending(folder) == []


def test_links_and_pipes_are_not_read(folder: Path, home: Path) -> None:
    folder.mkdir()
    (home / "secret").write_text(json.dumps(good()))
    (folder / "1.json").symlink_to(home / "secret")
    os.mkfifo(folder / "2.json")
    (folder / "3.json").mkdir()
    assert [bool(request.refused) for request in requests.pending(folder)] == [True, True, True]


def test_an_answer_is_never_written_through_a_link(folder: Path, home: Path) -> None:
    say(folder, "1.json", good())
    (home / "victim").write_text("mine")
    (folder / "1.answer.json").symlink_to(home / "victim")
    assert requests.pending(folder) == []
    assert not requests.reply(folder, requests.Request(number=1), {"answer": "a"})
    assert (home / "victim").read_text() == "mine"


def test_a_link_in_the_place_of_the_folder_is_not_followed(
    folder: Path, home: Path, environ: Mapping[str, str]
) -> None:
    elsewhere = home / "elsewhere"
    say(elsewhere, "1.json", good())
    folder.symlink_to(elsewhere)
    assert requests.pending(folder) == []
    assert not requests.reply(folder, requests.Request(number=1), {"answer": "a"})
    assert [one.name for one in elsewhere.iterdir()] == ["1.json"]
    assert requests.ask(environ, "Which?", (), 0)[0] == 2


def test_other_files_are_no_requests(folder: Path) -> None:
    for name in ("0.json", "01.json", "x.json", "1.txt", "².json", ".1.json", "1.json.bak", "9" * 10 + ".json"):
        say(folder, name, good())
    assert requests.pending(folder) == []


def test_numbers_go_on_above_those_that_were_used(folder: Path, environ: Mapping[str, str]) -> None:
    say(folder, "7.answer.json", {})
    requests.ask(environ, "Which?", (), 0)
    assert (folder / "8.json").exists()


def test_a_huge_question_is_cut_and_a_broken_character_replaced(folder: Path) -> None:
    say(folder, "1.json", good(data={"text": "\ud800" + "x" * 100_000, "options": ["y" * 5000] * 50, "wait": 1}))
    [request] = requests.pending(folder)
    text, options = request.data["text"], request.data["options"]
    assert len(text.encode()) <= 16 << 10
    assert (len(options), len(options[0])) == (20, 1024)


def test_nothing_is_left_beside_the_request_and_its_answer(folder: Path, environ: Mapping[str, str]) -> None:
    requests.ask(environ, "Which?", (), 0)
    assert sorted(one.name for one in folder.iterdir()) == ["1.answer.json", "1.json"]


def test_asking_outside_a_run_is_wrong_usage(environ: Mapping[str, str]) -> None:
    assert requests.ask({}, "Which?", (), 0)[0] == 2
    assert requests.ask(environ, "  ", (), 0)[0] == 2


def test_a_folder_that_can_not_be_written_is_said(home: Path, environ: Mapping[str, str]) -> None:
    (home / ".requests").write_text("a file in its place")
    code, text = requests.ask(environ, "Which?", (), 0)
    assert code == 2
    assert "can not be asked" in text


def test_a_report_is_a_result_that_the_engine_reads(home: Path, environ: Mapping[str, str]) -> None:
    assert requests.report(environ, "did it", "completed", ["more"])[0] == 0
    result = artifacts.read_result(home)
    assert result is not None
    assert (result.summary, result.next_steps) == ("did it", ("more",))


def test_a_report_that_is_wrong_names_the_field(environ: Mapping[str, str]) -> None:
    code, text = requests.report(environ, "did it", "great", ())
    assert code == 2
    assert "status" in text
    assert requests.report({}, "did it", "completed", ())[0] == 2


def test_the_agents_side_loads_nothing_of_the_store_or_the_model() -> None:
    script = "import sys, codefleet.engine.requests; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.startswith("codefleet.")}
    assert ours == {f"codefleet.{name}" for name in ("engine", "engine.requests", "engine.artifacts", "engine.files")}
    assert not {"msgspec", "anyio", "asyncio", "click", "apsw"} & set(loaded)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
near_data = st.fixed_dictionaries({"text": st.text() | values}, optional={"options": values, "wait": values})
near_requests = st.fixed_dictionaries(
    {"v": st.just(1) | values, "token": st.text() | values, "kind": st.just("ask") | values, "data": near_data | values}
)
names = st.sampled_from(["1.json", "2.json", "1.answer.json", "x"]) | st.from_regex(r"\w[\w.]{0,12}", fullmatch=True)


@settings(deadline=None, max_examples=300)
@given(name=names, data=st.binary() | near_requests.map(lambda one: json.dumps(one).encode()))
def test_any_file_can_lie_there(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / name).write_bytes(data)
        for request in requests.pending(folder):
            assert not requests.matches(request, DIGEST)
            assert requests.gave_up(folder, request), "nobody holds its lock"
            json.dumps(dict(request.data), allow_nan=False).encode()
            assert requests.reply(folder, request, {"refused": "no"})
        assert requests.pending(folder) == []
