"""The scripted agent's driver. The script is in the task's description or in a file that the agent type names."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from codefleet import __version__
from codefleet.core.progress import Event, Progress
from codefleet.core.settings import AgentType
from codefleet.drivers import activity, endings
from codefleet.ports import Capabilities, Check, ChildStatus, Command, Ending, Order

#: Isolated: nothing in the workspace or the environment takes the place of a module.
_PROGRAM = (sys.executable, "-I", "-m", "codefleet.drivers.scripted_agent")

_BLOCK = re.compile(r"^(`{3,}|~{3,})[ \t]*script[ \t]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)

#: Shorter than the longest argument that a kernel takes, even if every character needs four bytes.
_PIECE = 30_000

_STEERING = frozenset({"turn_ended", "message_taken"})


class Scripted:
    """An agent that does exactly what it is told. It speaks the events of `core.progress` as they are."""

    name = "scripted"
    capabilities = Capabilities(resume=True, cost=True, sessions=True)

    def __init__(self, agent: AgentType) -> None:
        self._file = str(Path(agent.script).expanduser()) if agent.script else ""

    async def check(self, env: Mapping[str, str]) -> Check:
        del env
        return Check(installed=True, version=__version__, detail=sys.executable)

    def command(self, order: Order) -> Command:
        script = block(order.description)
        pieces = [script[at : at + _PIECE] for at in range(0, len(script), _PIECE)]
        return Command(argv=(*_PROGRAM, *self._options(order), "--", *pieces))

    def _options(self, order: Order) -> list[str]:
        options = {
            "task_dir": str(order.task_dir),
            "artifacts": str(order.artifacts),
            "session": order.session_id,
            "run": order.run.rpartition(".")[2],
            "round": str(order.round),
            "resume": "1" if order.resume else "",
            "script": self._file,
        }
        return [f"{name}={value}" for name, value in options.items()]

    def parse(self, line: bytes) -> Sequence[Event]:
        if not line.strip():
            return ()
        value = activity.decode(line)
        if not isinstance(value, dict):
            return (activity.said(line),)
        kind = value.get("type")
        if isinstance(kind, str) and kind in _STEERING:
            return (_steering(kind, value),)
        return (activity.event(value),)

    def encode(self, text: str, uuid: str) -> bytes:
        """It takes no further message."""
        del uuid
        return text.encode()

    def farewell(self) -> bytes:
        return b""

    def conclude(self, progress: Progress, status: ChildStatus, stderr: str) -> Ending:
        return endings.of_turn(progress) or endings.of_exit(status, stderr)


def block(description: str) -> str:
    """The first fenced block `script` of a text; empty when it has none."""
    found = _BLOCK.search(description.replace("\r\n", "\n"))
    return found[2] if found else ""


def _steering(kind: str, value: Mapping[str, object]) -> Event:
    if kind == "message_taken":
        return Event(kind, {"uuid": activity.text(value.get("uuid"))})
    error, text = activity.text(value.get("error")), activity.text(value.get("text"))
    return Event(kind, {"ok": value.get("ok") is True, "error": error, "text": text, "denials": 0})
