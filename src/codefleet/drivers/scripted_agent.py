"""The scripted agent: it does what the lines of a script say, and prints each as an event when it is done.

    python -m codefleet.drivers.scripted_agent OPTION=VALUE… -- PIECE…

The pieces joined are the script (they only keep each argument short). One JSON object a line:

    {"write": PATH, "text": T}    {"append": PATH, "text": T}    {"delete": PATH}
    {"run": [argv]}               {"commit": MESSAGE}            {"sleep": SECONDS}
    {"say": T}                    {"usage": {…}}                 {"ask": T, "options": [T…], "wait": SECONDS}
    {"spawn": [argv], "setsid": true, "ignore": ["TERM"]}        {"hang": true, "ignore": ["TERM", "INT"]}
    {"flood": BYTES, "line": true}                               {"result": {…}}
    {"exit": N}                   {"signal": "SEGV"}             {"fail": "auth", "text": T}

`fail` ends the turn with an error of the protocol: auth, quota, overflow, turns, api, driver or own.

Which lines are done: `"on": "run 2"` limits a line to the second run of the task, `"on": "round 2"` to the second child
of a run, and both may stand together. A line without a round belongs to round 1. When no line names the present round,
the lines of round 1 are done again.

A session file remembers how far the script was done, so an agent that was interrupted goes on behind the last line
that it finished, and one that parked a question behind the question. Whoever ended by itself begins anew.

It imports only what it needs: it is started often, and starting is most of its work.
"""

# No pathlib: it would double the time to start.
# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False  # `typing` would double the time to start, too
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    Step = dict[str, Any]

_FLOOD_LINE = b"x" * 1023 + b"\n"


class Turn:
    """One life of the agent: where it works, what it was asked to do, how far it came."""

    def __init__(self, options: dict[str, str], steps: list[Step]) -> None:
        self.task_dir = options["task_dir"]
        self.artifacts = options["artifacts"]
        self.session = options.get("session", "")
        self.run = int(options.get("run", "1"))
        self.round = int(options.get("round", "1"))
        self.steps = steps
        self.next = 0
        if options.get("resume") == "1":
            self._remember()

    @property
    def file(self) -> str:
        return os.path.join(self.task_dir, "session.json")

    def _remember(self) -> None:
        """Go on where this session stood, in the round that it was in."""
        try:
            with open(self.file, encoding="utf-8") as file:
                kept = json.load(file)
        except (OSError, ValueError):
            return
        if kept.get("session_id") == self.session and kept.get("next"):
            self.next, self.round = kept["next"], kept["round"]

    def reached(self, step: int) -> None:
        """Record the line to go on with."""
        self.next = step
        kept = {"session_id": self.session, "round": self.round, "next": step}
        replace(self.file, json.dumps(kept))

    def todo(self) -> Iterator[tuple[int, Step]]:
        """The lines of this run and round that are not done yet, with their places."""
        round_ = self.round if any(where(step)[1] == self.round for step in self.steps) else 1
        for place, step in enumerate(self.steps):
            run, own = where(step)
            if place >= self.next and run in {0, self.run} and (own or 1) == round_:
                yield place, step


def where(step: Step) -> tuple[int, int]:
    """The run and the round that a line is limited to; 0: any run, no round named."""
    words = str(step.get("on", "")).split()
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    if set(pairs) - {"run", "round"}:
        raise ValueError(f'`on` takes "run N" and "round N", not {step["on"]!r}')
    return int(pairs.get("run", 0)), int(pairs.get("round", 0))


def replace(path: str, text: str) -> None:
    """Put a text where readers see all of it or none."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(fresh, path)


def put(kind: str, **data: Any) -> None:
    """Print an event."""
    line = json.dumps({"type": kind, **data}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    while line:
        line = line[os.write(1, line) :]


def log(text: str) -> None:
    put("log", text=text)


def lines_of(path: str) -> int | None:
    """How many lines a file has; None when it is not there."""
    try:
        with open(path, "rb") as file:
            return len(file.read().splitlines())
    except OSError:
        return None


def store(path: str, text: str, mode: str) -> None:
    before = lines_of(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)
    removed = (before or 0) if mode == "w" else 0
    kind = "created" if before is None else "modified"
    added = len(text.splitlines())
    put("file_changed", path=path, change_type=kind, lines_added=added, lines_removed=removed, tool="script")


def write(_: Turn, step: Step) -> None:
    store(step["write"], step.get("text", ""), "w")


def append(_: Turn, step: Step) -> None:
    store(step["append"], step.get("text", ""), "a")


def delete(_: Turn, step: Step) -> None:
    path = step["delete"]
    removed = lines_of(path) or 0
    os.unlink(path)
    put("file_changed", path=path, change_type="deleted", lines_added=0, lines_removed=removed, tool="script")


def result(turn: Turn, step: Step) -> None:
    replace(os.path.join(turn.artifacts, "result.json"), json.dumps(step["result"]))
    log("result.json written")


def start(argv: list[str], *, setsid: bool = False) -> int:
    """A child whose output joins our errors; its pid, or 0 when there is no such program."""
    try:
        return os.posix_spawnp(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)], setsid=setsid)
    except OSError as error:
        log(f"{argv[0]}: {error.strerror}")
        return 0


def ended(argv: list[str]) -> int:
    """Run a child to its end; its exit code, 127 when it could not be run."""
    pid = start(argv)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else 127


def call(name: str, *commands: list[str]) -> None:
    """Run commands until one fails, and say how that went."""
    begun = time.monotonic()
    code = next((code for code in map(ended, commands) if code != 0), 0)
    spent = int((time.monotonic() - begun) * 1000)
    status = "ok" if code == 0 else "error"
    put(
        "tool_call",
        id=f"{name}-{os.getpid()}-{int(begun * 1000)}",
        name=name,
        input=commands[-1],
        status=status,
        ms=spent,
    )


def run(_: Turn, step: Step) -> None:
    call("run", step["run"])


def commit(_: Turn, step: Step) -> None:
    call("commit", ["git", "add", "-A"], ["git", "commit", "-q", "-m", step["commit"]])


def ignoring(names: list[str], *, ignore: bool = True) -> None:
    """Ignore these signals, as every child that is started from now on does; or heed them again."""
    import signal

    for name in names:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN if ignore else signal.SIG_DFL)


def spawn(_: Turn, step: Step) -> None:
    """A child that nobody waits for."""
    deaf = step.get("ignore", [])
    ignoring(deaf)
    pid = start(step["spawn"], setsid=bool(step.get("setsid")))
    ignoring(deaf, ignore=False)
    put("tool_call", id=f"spawn-{pid}", name="spawn", input=step["spawn"], status="ok" if pid else "error", ms=0)


def say(_: Turn, step: Step) -> None:
    put("message", role="assistant", text=step["say"])


def usage(_: Turn, step: Step) -> None:
    put("usage", **step["usage"])


def sleep(_: Turn, step: Step) -> None:
    time.sleep(step["sleep"])
    log(f"slept {step['sleep']}")


def hang(_: Turn, step: Step) -> None:
    """Do nothing until somebody ends us."""
    ignoring(step.get("ignore", []))
    log("hanging")
    while True:
        time.sleep(3600)


def flood(_: Turn, step: Step) -> None:
    """Print very much: many lines, or one that is very long."""
    left = int(step["flood"])
    block = (b"x" * 65536) if step.get("line") else _FLOOD_LINE * 64
    while left > 0:
        left -= os.write(1, block[:left])
    os.write(1, b"\n")
    log(f"flooded {step['flood']}")


def ask(turn: Turn, step: Step) -> None:
    """Ask as every agent does; a parked question ends the turn, and the next one goes on with the answer."""
    options = [word for option in step.get("options", []) for word in ("--option", option)]
    words = [step["ask"], *options, "--wait", str(step.get("wait", 600))]
    environ = {**os.environ, "CODEFLEET_ARTIFACT_DIR": turn.artifacts}
    code, said = answered([sys.executable, "-m", "codefleet", "agent", "ask", *words], environ)
    if code == 0:
        put("message", role="user", text=said)
        return
    if code == 1:
        turn.reached(turn.next + 1)
    put("turn_ended", ok=code == 1, error="" if code == 1 else "own", text=said)
    leave(0 if code == 1 else 1)


def answered(argv: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Run a child; its exit code, and what it printed without the last newline."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading), (os.POSIX_SPAWN_CLOSE, writing)]
    pid = os.posix_spawn(argv[0], argv, environ, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.removesuffix("\n")


def leave(code: int) -> NoReturn:
    os._exit(code)


def exit_(turn: Turn, step: Step) -> NoReturn:
    turn.reached(0)
    if step["exit"] == 0:
        put("turn_ended", ok=True, error="", text="")
    leave(int(step["exit"]))


def signal_(turn: Turn, step: Step) -> None:
    """End as a crash does, without a core file."""
    import resource
    import signal

    turn.reached(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number = getattr(signal, f"SIG{step['signal']}")
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def fail(turn: Turn, step: Step) -> NoReturn:
    turn.reached(0)
    put("turn_ended", ok=False, error=step["fail"], text=step.get("text", ""))
    leave(1)


KINDS: dict[str, Callable[[Turn, Step], None]] = {
    "write": write,
    "append": append,
    "delete": delete,
    "run": run,
    "commit": commit,
    "sleep": sleep,
    "say": say,
    "usage": usage,
    "ask": ask,
    "spawn": spawn,
    "flood": flood,
    "hang": hang,
    "result": result,
    "exit": exit_,
    "signal": signal_,
    "fail": fail,
}


def read(script: str) -> list[Step]:
    """The lines of a script; an error names the line that is none."""
    steps = []
    for number, line in enumerate(script.splitlines(), 1):
        if not line.strip():
            continue
        try:
            step = json.loads(line)
            where(step)
            kind(step)
        except (ValueError, AttributeError) as error:
            raise ValueError(f"line {number} of the script: {error}") from error
        steps.append(step)
    return steps


def kind(step: Step) -> str:
    """What a line does."""
    found = [name for name in KINDS if name in step]
    if len(found) != 1:
        raise ValueError(f"one of {', '.join(KINDS)} is needed")
    return found[0]


def perform(turn: Turn) -> None:
    put("session_started", session_id=turn.session, model="scripted")
    for place, step in turn.todo():
        turn.next = place
        KINDS[kind(step)](turn, step)
        turn.reached(place + 1)
    turn.reached(0)
    put("turn_ended", ok=True, error="", text="")


def given(options: dict[str, str], pieces: list[str]) -> list[Step]:
    """The lines to do: those of the pieces, else those of the file that is named."""
    script = "".join(pieces)
    if not script and options.get("script"):
        with open(options["script"], encoding="utf-8") as file:
            script = file.read()
    steps = read(script)
    if not steps:
        raise ValueError("there is no script: a fenced block `script` in the description")
    return steps


def main(argv: list[str]) -> int:
    """Exit 0 when the script was done, 2 when it can not be understood, 1 when a line could not be done."""
    cut = argv.index("--")
    options = dict(word.split("=", 1) for word in argv[:cut])
    try:
        turn = Turn(options, given(options, argv[cut + 1 :]))
    except (ValueError, OSError) as error:
        put("turn_ended", ok=False, error="own", text=str(error))
        return 2
    try:
        perform(turn)
    except (OSError, ValueError, TypeError, LookupError) as error:
        turn.reached(0)
        put("turn_ended", ok=False, error="own", text=f"{type(error).__name__}: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
