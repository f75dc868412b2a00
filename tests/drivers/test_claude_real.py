"""The real Claude Code, on real spools, against the scripted model: no key, no internet."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from codefleet.core.progress import spent
from codefleet.core.settings import BUILT_IN, AgentType
from codefleet.drivers.claude import Claude
from codefleet.ports import ChildState, EndingKind, Order, SystemClock
from codefleet.processes.spools import Spools
from codefleet.testing.drivers import Live, live
from codefleet.testing.model_server import Fault, ModelServer, Script, ask, edit, say, shell, turn, write

BINARIES = Path(__file__).parents[2] / ".cache" / "agents" / "bin"

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(
        not (BINARIES / "claude").exists(), reason="@anthropic-ai/claude-code is not installed; run scripts/agents"
    ),
]

CLAUDE = Claude(BUILT_IN["claude"])
DEADLINE = 60

Start = Callable[..., AbstractAsyncContextManager[Live]]


@pytest.fixture
async def spools() -> AsyncIterator[Spools]:
    made = Spools(SystemClock())
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def start(spools: Spools, tmp_path: Path) -> Start:
    """Starts the agent on a spool of its own; it reaches the scripted model and nobody else."""

    def starting(
        model: ModelServer, order: Order, claude: Claude = CLAUDE, **env: str
    ) -> AbstractAsyncContextManager[Live]:
        spool = tmp_path / f"spool-{uuid.uuid4().hex[:8]}"
        given = {
            "PATH": f"{BINARIES}:{os.environ['PATH']}",
            "TMPDIR": str(_short(tmp_path)),
            **model.environment,
            **env,
        }
        return live(spools, claude, order, spool, given)

    return starting


def _short(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def order(order: Order) -> Order:
    """In a repository with one commit."""
    git(order, "init", "-q")
    git(order, "commit", "-q", "--allow-empty", "-m", "begin")
    return order


def git(order: Order, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    argv = ["git", "-C", str(order.workspace), *identity, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


async def test_it_edits_runs_the_gate_commits_and_is_kept_inside(order: Order, start: Start, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    order = replace(
        order, gates=("grep -q there hello.txt | cat", ("python3", "-c", "print('gate ok')")), prompt="Würk"
    )
    script = Script(
        "work",
        (
            turn(say("I begin."), write("hello.txt", "hello\nworld\n")),
            turn(edit("hello.txt", "world", "there")),
            turn(write(str(outside), "x"), write(str(order.artifacts / "result.json"), "{}")),
            turn(shell("sh -c 'grep -q there hello.txt | cat'")),
            turn(shell("python3 -c 'print('\"'\"'gate ok'\"'\"')'")),
            turn(shell("python3 -c 'print(1)'")),
            turn(shell("git add -A && git commit -q -m 'say hello'")),
            turn(say("Done.")),
        ),
    )
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order) as session:
            ending = await session.turn()
            status = await session.leave()
    assert ending.kind is EndingKind.OK
    assert (status.state, status.code) == (ChildState.DONE, 0)
    assert git(order, "show", "HEAD:hello.txt") == "hello\nthere\n"
    assert not outside.exists()
    assert (order.artifacts / "result.json").read_text() == "{}"
    changed = [(event.data["path"], event.data["change_type"]) for event in session.of("file_changed")]
    hello = str(order.workspace / "hello.txt")
    assert changed == [(hello, "created"), (hello, "modified"), (str(order.artifacts / "result.json"), "created")]
    assert [event.data["tool"] for event in session.of("permission_denied")] == ["Write", "Bash"]
    assert (session.progress.session_id, session.progress.text) == (order.session_id, "Done.")
    assert (session.progress.usage.input, session.progress.usage.output) == (8000, 400)
    assert session.progress.cost_usd
    assert len(model.of("work")) == 8


async def test_a_session_goes_on_in_its_process_and_in_the_next_and_is_counted_once(order: Order, start: Start) -> None:
    script = Script("talk", tuple(turn(say(word)) for word in ("one", "two", "three")))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order) as first:
            await first.turn()
            assert (await first.say("And now?", str(uuid.uuid4()))).kind is EndingKind.OK
            assert first.progress.text == "two"
            await first.leave()
        again = replace(order, resume=True, round=2, prompt="Go on.")
        async with start(model, again) as second:
            assert (await second.turn()).kind is EndingKind.OK
            await second.leave()
    assert second.progress.text == "three"
    assert second.progress.session_id == order.session_id
    both = [first.progress, second.progress]
    assert spent(both, {}).usage.input == 3000
    assert spent(both, {}).cost_usd == pytest.approx(second.progress.cost_usd)


async def test_what_a_message_contains_is_never_a_command_or_a_file(order: Order, start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the-hidden-word")
    script = Script("words", (turn(say("one")), turn(say("two"))))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, replace(order, prompt=f"Look at @{secret} please.")) as session:
            await session.turn()
            assert (await session.say("/clear", str(uuid.uuid4()))).kind is EndingKind.OK
            await session.leave()
    assert session.progress.text == "two"
    assert all("the-hidden-word" not in request.said for request in model.of("words"))
    assert str(secret) in model.of("words")[0].said


async def test_what_is_said_in_the_middle_of_a_turn_belongs_to_it(order: Order, start: Start) -> None:
    mark = order.workspace / "mark"
    script = Script(
        "slow",
        (
            turn(shell("python3 -c 'import os, time\nwhile not os.path.exists(\"mark\"): time.sleep(0.01)'")),
            turn(say("heard")),
        ),
    )
    gate = ("python3", "-c", 'import os, time\nwhile not os.path.exists("mark"): time.sleep(0.01)')
    order = replace(order, gates=(gate,))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order) as session:
            await session.until(lambda heard: bool(heard.of("tool_call")))
            further = str(uuid.uuid4())
            await session.child.send(session.driver.encode("One thing more.", further))
            mark.touch()
            assert (await session.turn(further)).kind is EndingKind.OK
            await session.leave()
    assert session.progress.turns == 1


async def test_a_limited_api_is_waited_for_and_said(order: Order, start: Start) -> None:
    fault = Fault(kind="http", status=429, retry_after=0.2, times=2)
    script = Script("busy", (turn(write("a.txt", "a")), turn(say("done"), fault=fault)))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order) as session:
            assert (await session.turn()).kind is EndingKind.OK
            await session.leave()
    assert [event.data["status"] for event in session.of("retry")] == [429, 429]
    assert [request.fault for request in model.of("busy")] == ["", "http", "http", ""]


async def test_a_killed_session_is_gone_on_with(order: Order, start: Start) -> None:
    stall = Fault(kind="stall", where="before")
    script = Script("work", (turn(write("a.txt", "a")), turn(shell("git add -A"), fault=stall), turn(say("finished"))))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order) as first:
            await anyio.to_thread.run_sync(model.wait, lambda server: len(server.of("work")) == 2)
            os.kill(first.child.status().pid, 9)
            status = await first.child.wait()
            assert status.code == -9
            assert first.driver.conclude(first.progress, status, first.stderr).kind is EndingKind.OWN_ERROR
        again = replace(order, run=f"{order.task_id}.2", resume=True, prompt="You were interrupted.")
        async with start(model, again) as second:
            assert (await second.turn()).kind is EndingKind.OK
            await second.leave()
    assert (second.progress.session_id, second.progress.text) == (order.session_id, "finished")
    assert git(order, "diff", "--cached", "--name-only") == "a.txt\n"
    assert spent([first.progress, second.progress], {}).usage.input == 2000


#: The others are recorded.
FAILURES: list[tuple[str, Fault, EndingKind]] = [
    ("an expired login", Fault(kind="http", status=401, times=-1), EndingKind.ACCOUNT_ERROR),
    ("an API that is down", Fault(kind="http", status=529, times=-1), EndingKind.DRIVER_ERROR),
    ("a full context", Fault(kind="overflow", times=-1), EndingKind.CONTEXT),
]


async def test_failures_of_the_api_are_blamed_on_who_causes_them(order: Order, start: Start) -> None:
    scripts = [Script(name, (turn(say("never"), fault=fault),), key=name) for name, fault, _ in FAILURES]
    found: dict[str, EndingKind] = {}

    async def one(number: int, name: str) -> None:
        session_id = str(uuid.uuid4())
        own = replace(order, session_id=session_id, prompt=f"The case of {name}.", run=f"{order.task_id}.{number}")
        async with start(model, own, CLAUDE_CODE_MAX_RETRIES="0") as session:
            found[name] = (await session.turn()).kind

    with anyio.fail_after(DEADLINE), ModelServer(scripts) as model:
        async with anyio.create_task_group() as group:
            for number, (name, _, _) in enumerate(FAILURES, 1):
                group.start_soon(one, number, name)
    assert found == {name: kind for name, _, kind in FAILURES}


async def test_what_keeps_it_from_starting_is_no_fault_of_the_task(order: Order, start: Start) -> None:
    with anyio.fail_after(DEADLINE), ModelServer([Script("none", (turn(say("hello")),))]) as model:
        async with start(model, order, ANTHROPIC_API_KEY="") as session:
            assert (await session.turn()).kind is EndingKind.ACCOUNT_ERROR
        flags = Claude(AgentType(driver="claude", flags=("--no-such-flag",)))
        async with start(model, order, flags) as session:
            ending = await session.turn()
            assert (ending.kind, session.progress.started) == (EndingKind.DRIVER_ERROR, False)
            assert "--no-such-flag" in ending.reason
        async with start(model, order, PATH="/nowhere") as session:
            assert (await session.turn()).kind is EndingKind.DRIVER_ERROR
    assert model.of("none") == ()


async def test_a_session_that_is_not_there_is_seen_before_anything_was_done(order: Order, start: Start) -> None:
    with anyio.fail_after(DEADLINE), ModelServer([]) as model:
        async with start(model, replace(order, resume=True)) as session:
            ending = await session.turn()
    assert ending.kind is not EndingKind.OK
    assert not session.progress.started


async def test_its_turns_can_be_limited(order: Order, start: Start) -> None:
    script = Script("work", (turn(write("a.txt", "a")), turn(say("never"))))
    limited = Claude(AgentType(driver="claude", max_turns=1))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order, limited) as session:
            assert (await session.turn()).kind is EndingKind.OWN_ERROR
    assert session.progress.last_turn["error"] == "turns"


async def test_a_question_is_asked_through_the_fleets_own_command(order: Order, start: Start) -> None:
    """Nobody is there to answer: it is what the shell tool lets pass that counts, quotes and all."""
    text = "users can't login $(touch x): which way?"
    script = Script("ask", (turn(ask(text, "a", "b")), turn(say("asked"))))
    folder = order.task_dir / "bin"
    folder.mkdir()
    command = folder / "codefleet"
    command.write_text("#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done\n")
    command.chmod(0o755)
    path = f"{folder}:{BINARIES}:{os.environ['PATH']}"
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order, PATH=path) as session:
            assert (await session.turn()).kind is EndingKind.OK
            await session.leave()
    assert not session.of("permission_denied")
    assert any(text.encode() in line for line in session.lines)
    assert not (order.workspace / "x").exists()


async def test_a_workspace_may_have_any_name(order: Order, start: Start) -> None:
    order = replace(order, workspace=order.workspace / "[a] b*c (d)" / "{e} ü", artifacts=order.artifacts / "[x]")
    order.workspace.mkdir(parents=True)
    script = Script("work", (turn(write("a.txt", "a"), write(str(order.artifacts / "b.txt"), "b")), turn(say("done"))))
    with anyio.fail_after(DEADLINE), ModelServer([script]) as model:
        async with start(model, order) as session:
            assert (await session.turn()).kind is EndingKind.OK
            await session.leave()
    assert ((order.workspace / "a.txt").read_text(), (order.artifacts / "b.txt").read_text()) == ("a", "b")


async def test_a_check_tells_version_and_login(tmp_path: Path) -> None:
    env = {"PATH": str(BINARIES), "HOME": str(tmp_path)}
    without = await CLAUDE.check(env)
    assert (without.installed, without.logged_in) == (True, False)
    assert without.version[0].isdigit()
    assert (await CLAUDE.check({**env, "ANTHROPIC_API_KEY": "sk-ant-x"})).logged_in
    assert not (await CLAUDE.check({"PATH": str(tmp_path), "HOME": str(tmp_path)})).installed
