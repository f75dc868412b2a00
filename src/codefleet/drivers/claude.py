"""Claude Code, driven by its own stream of JSON lines over a queue, so that it outlives us.

Without bypass it can edit its workspace and artifacts, and run the gates, `codefleet agent`, and what the agent type
allows; all else is denied without asking, which the agent reads as a tool's error. A denial never fails a run.
A message whose uuid its session has seen is acknowledged and not taken again.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from codefleet.core.errors import ConfigError
from codefleet.core.progress import Event, Progress
from codefleet.core.settings import AgentType
from codefleet.drivers import activity, claude_stream, endings
from codefleet.ports import Capabilities, Check, ChildState, ChildStatus, Command, Ending, EndingKind, Order

PROGRAM = "claude"

#: Longer than the longest wait for an answer, so that the shell tool does not end `codefleet agent ask`.
_SHELL_LIMIT = "660000"

#: Quiet; one result a turn (work in the background would go on after the turn that began it); and a file's name in a
#: message is a word (it would be read, whatever the permissions).
_ENVIRONMENT: Mapping[str, str] = {
    "BASH_DEFAULT_TIMEOUT_MS": _SHELL_LIMIT,
    "BASH_MAX_TIMEOUT_MS": _SHELL_LIMIT,
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}

_FIXED = (
    "-p",
    *("--input-format", "stream-json"),
    *("--output-format", "stream-json"),
    "--verbose",
    "--replay-user-messages",
    *("--setting-sources", ""),
)

#: Tools that, allowed without a path, write anywhere on the machine.
_WRITERS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_NOT_OFFERED = ("WebFetch", "WebSearch")

_FAREWELL = {"type": "control_request", "request_id": "end-1", "request": {"subtype": "end_session"}}
_SPACE = uuid.UUID("6d7a1f34-8f0e-4f38-9b38-0d6f8a1c5e21")
_CHECK_LIMIT = 5.0


class Claude:
    """One process per child; it stays for further messages until it is told to end its session."""

    name = "claude"
    capabilities = Capabilities(resume=True, live=True, cost=True, sessions=True)

    def __init__(self, agent: AgentType) -> None:
        bare = sorted(_WRITERS.intersection(agent.allowed_tools))
        if bare and agent.permissions != "bypass":
            what = f"allowed_tools has a bare {', '.join(bare)}: it could write anywhere on this machine"
            raise ConfigError(
                what, hint="Leave it out: the workspace is allowed anyway. Or name a path: Edit(//path/**)."
            )
        self._agent = agent

    # ------------------------------------------------------------------------------------------------------ start

    def command(self, order: Order) -> Command:
        first = order.message_id or str(uuid.uuid5(_SPACE, f"{order.run}/{order.round}"))
        session = ("--resume" if order.resume else "--session-id", order.session_id)
        argv = (PROGRAM, *_FIXED, *self._permissions(order), *session, *self._model(order), *self._agent.flags)
        return Command(
            argv=argv,
            env=_ENVIRONMENT,
            stdin="queue",
            messages=(self.encode(order.prompt, first),),
            uuids=(first,),
        )

    def _model(self, order: Order) -> tuple[str, ...]:
        model = ("--model", order.model) if order.model else ()
        turns = ("--max-turns", str(self._agent.max_turns)) if self._agent.max_turns else ()
        return (*model, *turns)

    def _permissions(self, order: Order) -> tuple[str, ...]:
        if self._agent.permissions == "bypass":
            return ("--dangerously-skip-permissions",)
        allowed = [*dict.fromkeys((*self._agent.allowed_tools, *rules(order)))]
        denied = [tool for tool in _NOT_OFFERED if tool not in {rule.partition("(")[0] for rule in allowed}]
        settings = {"permissions": {"allow": allowed, "deny": denied}}
        return ("--permission-mode", "dontAsk", "--settings", json.dumps(settings, ensure_ascii=False))

    # ------------------------------------------------------------------------------------------------------ words

    def parse(self, line: bytes) -> Sequence[Event]:
        if not line.strip():
            return ()
        value = activity.decode(line)
        if not isinstance(value, dict):
            return (activity.said(line),)
        events = claude_stream.events(value)
        return () if events is None else events

    def encode(self, text: str, uuid: str) -> bytes:
        """A text that begins with a slash would be a command to the agent itself, such as to forget all."""
        message = {"role": "user", "content": f"\n{text}" if text.startswith("/") else text}
        return _line({"type": "user", "uuid": uuid, "message": message, "parent_tool_use_id": None, "session_id": ""})

    def farewell(self) -> bytes:
        return _line(_FAREWELL)

    def conclude(self, progress: Progress, status: ChildStatus, stderr: str) -> Ending:
        turn = progress.last_turn
        if turn and not progress.pending_turn and turn.get("ok") is not True:
            return self._failed(progress, turn)
        if (verdict := endings.of_turn(progress)) is not None:
            return verdict
        if status.ended_by or status.exec_error or progress.started:
            return _unfinished(endings.of_exit(status, stderr), status)
        return endings.at_start(status, stderr)

    def _failed(self, progress: Progress, turn: Mapping[str, Any]) -> Ending:
        """The fields of the turn's end decide; the message that reported the failure says more where they say only
        that the API failed. A request that the API refuses is the set-up's fault if it never took one."""
        error = str(turn.get("error") or "own")
        if error in {"api", "own"} and progress.failure:
            error = progress.failure
        elif error == "request":
            error = "own" if progress.usage.total else "driver"
        return endings.of_error(error, str(turn.get("text") or ""))

    # ------------------------------------------------------------------------------------------------------ check

    async def check(self, env: Mapping[str, str]) -> Check:
        found = shutil.which(PROGRAM, path=env.get("PATH", ""))
        if found is None:
            return Check(installed=False, detail="claude is not on PATH; install @anthropic-ai/claude-code")
        return await _look(found, {**env, **_ENVIRONMENT})


def rules(order: Order) -> list[str]:
    """What this run may do beside what its agent type allows."""
    places = [str(place) for place in (order.workspace, order.artifacts)]
    real = [str(Path(place).resolve()) for place in places]
    writes = [f"Edit(/{_literal(place)}/**)" for place in dict.fromkeys((*places, *real))]
    gates = [f"Bash({words})" for gate in order.gates for words in _forms(gate)]
    return [*writes, *gates, "Bash(codefleet agent *)"]


def _forms(gate: tuple[str, ...] | str) -> tuple[str, ...]:
    """How an agent may call a gate. A pipe or a redirection is only allowed in the form that hides it in a word."""
    return (gate, shlex.join(("sh", "-c", gate))) if isinstance(gate, str) else (shlex.join(gate),)


def _literal(path: str) -> str:
    """A path as a pattern that means only this path."""
    return re.sub(r"([*\[\]])", r"\\\1", path)


def _line(value: Mapping[str, Any]) -> bytes:
    """One line, whatever text is in it; halves of characters become question marks."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _unfinished(ending: Ending, status: ChildStatus) -> Ending:
    """It ended without a word on its turn: an exit code of 0 says nothing then."""
    if ending.kind is not EndingKind.OK:
        return ending
    state = "it is still in its turn" if status.state is ChildState.RUNNING else "it exited in the middle of its turn"
    return Ending(kind=EndingKind.OWN_ERROR, reason=state)


async def _look(program: str, env: Mapping[str, str]) -> Check:
    """Ask the program itself. It looks only at what is stored here: an expired login counts as one."""
    answers: dict[str, tuple[int | None, str]] = {}

    async def ask(*words: str) -> None:
        answers[words[0]] = await _output((program, *words), env)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "--version")
        group.start_soon(ask, "auth", "status")
    code, words = answers["--version"]
    if code != 0:
        return Check(
            installed=False, detail=f"{program} --version failed: {words.strip()[:500] or 'no answer in time'}"
        )
    version = words.split()[0] if words.split() else ""
    status = activity.decode(answers["auth"][1].encode())
    known = status.get("loggedIn") if isinstance(status, dict) else None
    logged_in = known if isinstance(known, bool) else None
    return Check(
        installed=True,
        version=version,
        logged_in=logged_in,
        detail="" if logged_in else "log in with: claude auth login",
    )


async def _output(argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output of a program; no code when it did not end in time or can not be run."""
    try:
        with anyio.move_on_after(_CHECK_LIMIT - 0.5):
            done = await anyio.run_process(argv, env=env, check=False, stdin=-3, stderr=-2)
            return done.returncode, done.stdout.decode("utf-8", "replace")
    except OSError as error:
        return None, str(error)
    return None, ""
