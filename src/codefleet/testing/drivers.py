"""The contract of a driver as a suite, and the means to run one driver's child to its end without an engine.

Subclass `DriverContract` with a fixture `driver`, and pytest holds the adapter to `ports.Driver`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from codefleet.core.model import ACTIVITY_KINDS
from codefleet.core.progress import Event, Progress, fold
from codefleet.ports import Child, ChildState, ChildStatus, Command, Driver, Ending, EndingKind, Job, Order, Processes

STEERING = frozenset({"turn_ended", "message_taken"})


@dataclass(frozen=True)
class Ran:
    """What a child did."""

    code: int
    events: tuple[Event, ...]
    progress: Progress
    stderr: str
    ending: Ending

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


def first_order(folder: Path) -> Order:
    """The order for the first run of a task, in folders of its own."""
    workspace, task = folder / "work", folder / "task"
    artifacts = task / "artifacts"
    workspace.mkdir(parents=True)
    artifacts.mkdir(parents=True)
    prompt = task / "prompt.md"
    prompt.write_text("Do it.")
    return Order(
        task_id="abcd2345",
        run="abcd2345.1",
        workspace=workspace,
        task_dir=task,
        artifacts=artifacts,
        prompt_file=prompt,
        prompt="Do it.",
        session_id="6f0c1f9e-5b0e-4e53-9d24-6d2a3f1e9a10",
    )


def environment(order: Order, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child needs: a path, a home in the task's folder, an identity for git."""
    passed = {name: os.environ[name] for name in ("PATH", "CODEFLEET_TEST") if name in os.environ}
    people = {f"GIT_{who}_{what}": "test@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**passed, **people, "HOME": str(order.task_dir), **(more or {})}


def run(driver: Driver, order: Order, env: Mapping[str, str] | None = None, deadline: float = 60) -> Ran:
    """Run the driver's command to its end and read its output as an engine does."""
    command = driver.command(order)
    environ = {**environment(order), **command.env, **(env or {})}
    out, err = order.task_dir / "out", order.task_dir / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        done = subprocess.run(
            command.argv,
            cwd=order.workspace,
            env=environ,
            input=_stdin(command, order, driver),
            stdout=stdout,
            stderr=stderr,
            timeout=deadline,
            check=False,
        )
    status = ChildStatus(state=ChildState.DONE, pid=1, code=done.returncode)
    return read(driver, out.read_bytes().splitlines(), status, err.read_text(errors="replace"))


def _stdin(command: Command, order: Order, driver: Driver) -> bytes:
    if command.stdin == "prompt":
        return order.prompt_file.read_bytes()
    lines = (*command.messages, driver.farewell()) if command.stdin == "queue" else ()
    return b"".join(line + b"\n" for line in lines)


def read(driver: Driver, lines: Iterable[bytes], status: ChildStatus, stderr: str = "") -> Ran:
    """What lines of output and an end mean to a driver."""
    events = tuple(event for line in lines for event in driver.parse(line))
    progress = Progress()
    for event in events:
        progress = fold(progress, event)
    return Ran(status.code or 0, events, progress, stderr, driver.conclude(progress, status, stderr))


class DriverContract:
    """What every driver promises. A subclass gives the fixture `driver`."""

    @pytest.fixture
    def order(self, tmp_path: Path) -> Order:
        return first_order(tmp_path)

    def test_a_command_has_a_program_and_fits_the_kernel(self, driver: Driver, order: Order) -> None:
        for prompt in ("Do it.", "x" * 300_000, "users can't login $(touch x) {task_id}"):
            command = driver.command(replace(order, prompt=prompt))
            assert command.argv[0]
            assert all(len(word.encode()) < 128 * 1024 for word in command.argv)
            assert not any("\0" in word for word in command.argv)

    def test_the_same_order_gives_the_same_command(self, driver: Driver, order: Order) -> None:
        assert driver.command(order) == driver.command(order)

    def test_messages_go_to_a_queue_one_line_each(self, driver: Driver, order: Order) -> None:
        command = driver.command(replace(order, prompt="two\nlines"))
        assert not command.messages or command.stdin == "queue"
        assert len(command.uuids) == len(set(command.uuids)) <= len(command.messages)
        assert not any(b"\n" in message for message in (*command.messages, driver.farewell()))

    def test_a_live_session_takes_messages_and_can_be_ended(self, driver: Driver, order: Order) -> None:
        if driver.capabilities.live:
            assert driver.command(order).stdin == "queue"
            assert driver.farewell()
            assert b"\n" not in driver.encode("two\nlines", "u-1")

    def test_the_environment_has_no_secret_and_none_of_the_fleet(self, driver: Driver, order: Order) -> None:
        names = set(driver.command(order).env)
        assert not [
            name for name in names if name.startswith(("CODEFLEET_", "FLEET_")) or name.endswith(("_KEY", "_TOKEN"))
        ]

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"\n",
            b"\xff\xfe\x00",
            b"plain words about status 429, please log in",
            b"{",
            b"[]",
            b"null",
            b'"text"',
            b"{}",
            b'{"type": 3}',
            b'{"type": "result"}',
            b'{"type": "usage", "input": "many", "cost_usd": -1}',
            b'{"type": "message", "text": {"a": "\\ud800"}}',
            b'{"type": "a kind of the next year", "x": ' + b"[" * 500 + b"]" * 500 + b"}",
            b"[" * 100_000,
            b'{"type": "usage", "input": ' + b"9" * 5000 + b"}",
        ],
    )
    def test_any_line_is_read_and_nothing_of_it_breaks_the_fold(self, driver: Driver, line: bytes) -> None:
        progress = Progress()
        for event in driver.parse(line):
            assert event.kind in ACTIVITY_KINDS | STEERING
            progress = fold(progress, event)
        assert driver.parse(line) == driver.parse(line)

    def test_words_in_the_output_decide_nothing(self, driver: Driver) -> None:
        words = (
            b"error 429 rate limit",
            b"please log in: 401 unauthorized",
            b"success, all done",
            b"context length exceeded",
        )
        status = ChildStatus(state=ChildState.DONE, code=1)
        verdicts = {read(driver, [line], status, line.decode()).ending.kind for line in words}
        assert len(verdicts) == 1
        assert verdicts <= {EndingKind.OWN_ERROR, EndingKind.DRIVER_ERROR}

    def test_a_program_that_can_not_be_run_is_the_drivers_error(self, driver: Driver) -> None:
        status = ChildStatus(state=ChildState.DONE, exec_error="No such file or directory")
        assert driver.conclude(Progress(), status, "").kind is EndingKind.DRIVER_ERROR

    def test_an_unknown_exit_is_never_a_success_by_guess(self, driver: Driver) -> None:
        status = ChildStatus(state=ChildState.DONE, code=None)
        assert driver.conclude(Progress(), status, "").kind is not EndingKind.OK

    async def test_a_check_costs_nothing_and_never_raises(self, driver: Driver, tmp_path: Path) -> None:
        check = await driver.check({"PATH": str(tmp_path), "HOME": str(tmp_path)})
        assert isinstance(check.installed, bool)


class Live:
    """A child on a spool and what it said so far."""

    def __init__(self, driver: Driver, child: Child) -> None:
        self.driver = driver
        self.child = child
        self.events: list[Event] = []
        self.progress = Progress()
        self.lines: list[bytes] = []
        self.over = False
        self._news = anyio.Event()

    async def listen(self) -> None:
        async for line in self.child.lines():
            self.lines.append(line.data)
            for event in self.driver.parse(line.data):
                self.events.append(event)
                self.progress = fold(self.progress, event)
            self._tell()
        self.over = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, reached: Callable[[Live], bool]) -> None:
        """Wait until what was heard is as wanted, or the child is over."""
        while not self.over and not reached(self):
            await self._news.wait()

    async def turn(self, *taken: str) -> Ending:
        """Wait for the end of the turn in which these messages were taken, and judge it."""
        await self.until(lambda live: live.idle and set(taken) <= live.progress.taken)
        return self.driver.conclude(self.progress, self.child.status(), self.stderr)

    @property
    def idle(self) -> bool:
        """Has the agent ended its turn on all that it took?"""
        return bool(self.progress.turns) and not self.progress.pending_turn

    async def say(self, text: str, uuid: str) -> Ending:
        """Send a further message and wait for the end of its turn."""
        await self.child.send(self.driver.encode(text, uuid))
        return await self.turn(uuid)

    async def leave(self) -> ChildStatus:
        """End the session as it wants to be ended."""
        await self.child.send(self.driver.farewell())
        return await self.child.wait()

    @property
    def stderr(self) -> str:
        file = self.child.spool / "err"
        return file.read_text(errors="replace") if file.is_file() else ""

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@asynccontextmanager
async def live(
    processes: Processes, driver: Driver, order: Order, spool: Path, env: Mapping[str, str]
) -> AsyncIterator[Live]:
    """Start the driver's child on a spool, with its first messages, and listen; it is ended on the way out."""
    command = driver.command(order)
    stdin = order.prompt_file if command.stdin == "prompt" else command.stdin
    environ = {**environment(order), **command.env, **env}
    child = await processes.start(spool, Job(argv=command.argv, cwd=order.workspace, env=environ, stdin=stdin))
    session = Live(driver, child)
    for message in command.messages:
        await child.send(message)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(session.listen)
            yield session
            await child.stop(0)
    finally:
        with anyio.CancelScope(shield=True):
            await child.stop(0)
