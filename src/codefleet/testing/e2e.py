"""A person at a terminal, a real repository, and a real coding agent that talks to a scripted model and to nobody else."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codefleet.core.layout import Home

DEADLINE = 60.0
KEY = "sk-ant-the-key-that-nobody-may-see"
HINT = "hush-hush-in-the-configuration"
"""Another secret: one that stands in the agent type's `env`."""
SECRETS = (KEY, HINT)
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
}


def until(what: Callable[[], bool], told: Callable[[], object] = str) -> None:
    """Wait for something that comes by itself; `told` says what there was instead."""
    end = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < end, f"it did not come: {told()}"
        time.sleep(0.02)


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.out)["data"]


@dataclass(frozen=True)
class Engine:
    """A `codefleet run-single` in the foreground of its own terminal."""

    process: subprocess.Popen[bytes]
    screen: Path

    @property
    def shown(self) -> str:
        return self.screen.read_text(errors="replace")

    def until(self, *words: str) -> None:
        """Wait until all of these are on the screen."""
        until(lambda: self.process.poll() is not None or self._shows(words), lambda: self.shown)
        assert self._shows(words), self.shown

    def _shows(self, words: Sequence[str]) -> bool:
        shown = self.shown
        return all(word in shown for word in words)

    def kill(self) -> None:
        """As if the machine had no memory left for it: no word, no cleaning up."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def wait(self) -> int:
        """Its exit code, when it has ended by itself."""
        return self.process.wait(DEADLINE)


@dataclass
class Terminal:
    """All of it lies in one folder: the home, the person's own home, the project. Nothing else is touched."""

    path: Path
    programs: Path
    """Where the agents' command lines are."""
    screens: int = field(default=0)

    @property
    def home(self) -> Home:
        return Home(self.path / "home")

    @property
    def project(self) -> Path:
        return self.path / "project"

    @property
    def environ(self) -> Mapping[str, str]:
        """Little; the key is passed on by `keep`."""
        kept = {name: os.environ[name] for name in ("LANG", "PYTHONPATH", "CODEFLEET_TEST") if name in os.environ}
        own = {"HOME": str(self.path / "person"), "NO_COLOR": "1", "ANTHROPIC_API_KEY": KEY}
        nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return {**kept, **_IDENTITY, **nothing, **own, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    # -------------------------------------------------------------------------------------------------- commands

    def __call__(self, command: str, *words: str, code: int | None = 0) -> Said:
        """A command in a process of its own; it must end with this code."""
        done = subprocess.run(
            self._argv(command, *words),
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert code is None or done.returncode == code, f"{command} {words}: {done.returncode}\n{done.stderr}"
        assert not [secret for secret in SECRETS if secret in done.stdout + done.stderr], f"{command} {words}"
        return Said(done.returncode, done.stdout, done.stderr)

    def _argv(self, command: str, *words: str) -> list[str]:
        return [sys.executable, "-m", "codefleet", command, "--home", str(self.home.path), *words]

    @contextmanager
    def engine(self, *words: str) -> Iterator[Engine]:
        """A runner that works until nothing is left to do; what still runs at the end is asked to stop."""
        self.screens += 1
        screen = self.path / f"screen-{self.screens}"
        with screen.open("wb") as out:
            process = subprocess.Popen(
                self._argv("run-single", "--debug", "--name", "claude-1", *words),
                cwd=self.project,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Engine(process, screen)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE)

    def works(self, code: int = 0) -> str:
        """Run one until nothing is left to do; what it showed."""
        with self.engine("--until-idle") as engine:
            assert engine.wait() == code, engine.shown
        return engine.shown

    # ------------------------------------------------------------------------------------------------- begin

    def begin(self, model: str, *, gate: str = "", **env: str) -> None:
        """A repository, trusted, with a gate if one is given, and a home whose agent talks to this model."""
        for folder in (self.project, self.path / "person"):
            folder.mkdir(parents=True)
        (self.project / "README.md").write_text("# A project\n")
        (self.project / "codefleet.toml").write_text(
            f"[gates.check]\ncommand = {json.dumps(gate)}\n" if gate else "# nothing is configured\n"
        )
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Begin")
        self.configure(model, **env)
        self("init", "--trust")

    def configure(self, model: str, **env: str) -> None:
        """Let the agent talk to this model from now on."""
        self.home.path.mkdir(mode=0o700, exist_ok=True)
        pairs = {"ANTHROPIC_BASE_URL": model, "SERVICE_TOKEN": HINT, **env}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in pairs.items()]
        self.home.settings.write_text(
            f'poll_interval = 1\n[agents.claude]\nkeep = ["ANTHROPIC_API_KEY"]\n[agents.claude.env]\n{"".join(lines)}'
        )

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.project, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    # --------------------------------------------------------------------------------------------------- look

    def added(self, title: str, *words: str) -> str:
        """The id of a new task."""
        return str(self("add", title, "--json", *words).data["id"])

    def task(self, key: str) -> dict[str, Any]:
        found = self("show", key, "--json").data
        assert isinstance(found, dict)
        return found

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Facts and activity of these kinds, as they were recorded."""
        lines = self("events", "--all", "--json").out.splitlines()
        found = [json.loads(line) for line in lines]
        return [one for one in found if not kinds or one["kind"] in kinds]

    def children(self, run: str) -> list[Path]:
        """The spools of the agents of a run."""
        return sorted(self.home.spools(run).glob("*-agent"))

    def turns(self, run: str, count: int) -> None:
        """Wait until the first agent of a run has ended so many turns, whoever listens."""
        out = self.children(run)[0] / "out"
        until(lambda: out.read_bytes().count(b'"type":"result"') >= count)

    def pid(self, run: str) -> int:
        """The agent's process of a run that works now."""
        [started] = [one for one in self.events("task_started") if one["run"] == run]
        return int(started["data"]["pid"])

    def leaks(self, secret: str) -> list[str]:
        """Files of the home and of the screens that hold a secret though they must not. What an agent was given and
        wrote itself, and the person's own settings, may, and nobody else may read those."""
        places = [*self.home.path.rglob("*"), *self.path.glob("screen-*")]
        holding = [place for place in places if place.is_file() and secret.encode() in _read(place)]
        return [str(place) for place in holding if not self._may_hold(place)]

    def _may_hold(self, place: Path) -> bool:
        raw = place.is_relative_to(self.home.path / "spool") or place.parent.name == ".requests"
        return place == self.home.settings or (raw and not _open_to_others(place))


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except FileNotFoundError:
        return b""


def _open_to_others(place: Path) -> bool:
    return bool(stat.S_IMODE(place.stat().st_mode) & 0o077)


def alive(pid: int) -> bool:
    """Does a process run, and is not only a name that nobody has asked for yet?"""
    try:
        words = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words.rpartition(")")[2].split()[0] not in {"Z", "X"}


def environ_of(pid: int) -> dict[str, str]:
    """The environment that a process was given."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)
