"""A plain command as an agent: words of a command line with places to fill, and exit 0 for success."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence

from codefleet.core.errors import ConfigError
from codefleet.core.progress import Event, Progress
from codefleet.core.settings import AgentType
from codefleet.drivers import activity, claude_stream, endings
from codefleet.ports import Capabilities, Check, ChildStatus, Command, Ending, Order

#: The kernel takes no argument longer than this, its closing NUL included.
ARGUMENT_LIMIT = 128 * 1024

#: Steers the engine in protocols that have a say; a plain command has none.
_STEERING = frozenset({"turn_ended", "message_taken"})

_PLACE = re.compile(r"\{(task_id|prompt_file|prompt|model|workspace|task_dir|artifacts_dir)\}")


class CommandLine:
    """Runs the words as they stand: no shell ever sees them. Its output is telemetry and decides nothing."""

    name = "command"
    capabilities = Capabilities()

    def __init__(self, agent: AgentType) -> None:
        if not agent.command or not agent.command[0]:
            raise ConfigError(
                'an agent type with driver = "command" needs `command`',
                hint='Say `command = ["my-agent", "{prompt_file}"]`.',
            )
        self._words = agent.command
        self._stdin = agent.stdin

    async def check(self, env: Mapping[str, str]) -> Check:
        program = self._words[0]
        if _PLACE.search(program):
            return Check(installed=True, detail="the program depends on the run")
        found = shutil.which(program, path=env.get("PATH"))
        return Check(installed=found is not None, detail=found or f"{program} is not on PATH")

    def command(self, order: Order) -> Command:
        places = _places(order)
        words = tuple(filled(word, places) for word in self._words)
        if not all(fits(word) for word in words):
            places["prompt"] = f"Your instructions are in the file {order.prompt_file}: read all of it first."
            words = tuple(filled(word, places) for word in self._words)
        return Command(argv=words, stdin=self._stdin)

    def parse(self, line: bytes) -> Sequence[Event]:
        if not line.strip():
            return ()
        value = activity.decode(line)
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            return (activity.said(line),)
        events = claude_stream.events(value)
        if events is None:
            events = (activity.event(value),)
        return tuple(event for event in events if event.kind not in _STEERING)

    def encode(self, text: str, uuid: str) -> bytes:
        """A plain command takes no further message."""
        del uuid
        return text.encode()

    def farewell(self) -> bytes:
        return b""

    def conclude(self, progress: Progress, status: ChildStatus, stderr: str) -> Ending:
        del progress
        return endings.of_exit(status, stderr)


def filled(word: str, places: Mapping[str, str]) -> str:
    """The word with its places filled, in one pass: what is filled in is never looked at again."""
    return _PLACE.sub(lambda match: places[match[1]], word)


def fits(word: str) -> bool:
    """Can this be an argument of a program?"""
    return len(word.encode()) < ARGUMENT_LIMIT and "\0" not in word


def _places(order: Order) -> dict[str, str]:
    return {
        "task_id": order.task_id,
        "prompt_file": str(order.prompt_file),
        "prompt": order.prompt,
        "model": order.model,
        "workspace": str(order.workspace),
        "task_dir": str(order.task_dir),
        "artifacts_dir": str(order.artifacts),
    }
