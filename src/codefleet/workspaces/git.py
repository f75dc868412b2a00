"""The only caller of git: argument lists, never a shell, bounded time, no hooks, no prompts, no signing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from codefleet.core.errors import GitError
from codefleet.workspaces import layout, space, talking

#: Seconds that one call may take; a checkout of a huge repository is the longest there is.
LIMIT = 900.0
MINIMUM = (2, 38)
_TIMEOUT = -1000

#: Of git's variables only those pass that say who and how; GIT_DIR and the like would send us elsewhere.
_KEPT = frozenset(
    """
    GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM
    GIT_CONFIG_NOSYSTEM GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CEILING_DIRECTORIES GIT_DISCOVERY_ACROSS_FILESYSTEM
    """.split()
)

#: Nothing of a repository's configuration may run programs of its own or linger behind us.
_QUIET = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "core.safecrlf": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
}


def shown(name: str) -> str:
    """A file's name as text that can be stored: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(name).decode(errors="backslashreplace")


def configuration(values: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that give git these settings."""
    pairs = list(values.items())
    keys = {f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(pairs)}
    return {
        "GIT_CONFIG_COUNT": str(len(pairs)),
        **keys,
        **{f"GIT_CONFIG_VALUE_{n}": v for n, (_, v) in enumerate(pairs)},
    }


def _environment() -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in _KEPT}
    return {**own, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", **configuration(_QUIET)}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of git, not yet made."""

    cwd: Path
    args: Sequence[str]
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    ok: Collection[int] = (0,)
    seconds: float = LIMIT
    keep: tuple[int, ...] = ()
    """File descriptors that the child holds too: a lock lives as long as the git that works under it."""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: bytes

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).strip()

    @property
    def fields(self) -> list[str]:
        """What stands between NUL bytes."""
        return [os.fsdecode(item) for item in self.out.split(b"\0") if item]


def run(
    cwd: Path,
    *args: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    ok: Collection[int] = (0,),
    seconds: float = LIMIT,
    keep: tuple[int, ...] = (),
) -> Answer:
    """Call git and wait; any exit code not in `ok` is `GitError` with git's words, a full disk is `NoSpace`."""
    return together(Call(cwd, args, stdin, env or {}, ok, seconds, keep))[0]


def together(*calls: Call) -> list[Answer]:
    """Make several calls at once and wait for all; the first that failed is raised when all have ended."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(_start(call) for call in calls)
        ended = [_finish(call, process) for call, process in zip(calls, started, strict=True)]
    finally:
        for process in started:
            _end(process)
    return [_judged(call, *end) for call, end in zip(calls, ended, strict=True)]


def _start(call: Call) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["git", *call.args],
            cwd=call.cwd,
            env={**_environment(), **call.env},
            stdin=subprocess.PIPE if call.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=call.keep,
            process_group=0,  # a Ctrl-C is for the engine, and on a timeout filters end with git
        )
    except FileNotFoundError:
        if call.cwd.is_dir():
            raise GitError("git is not installed.", hint=f"Install git {_dotted(MINIMUM)} or newer.") from None
        raise GitError(f"{call.cwd} is gone.", hint="Somebody removed or moved it.") from None
    except OSError as error:
        raise _refused(call, error) from error


def _refused(call: Call, error: OSError) -> GitError | Exception:
    if error.errno in space.FULL:
        return space.no_space([call.cwd])
    return GitError(f"git could not be started in {call.cwd}: {os.strerror(error.errno or errno.EIO)}.")


def _finish(call: Call, process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    said = talking.talk(process, call.stdin, call.seconds)
    if said is None:
        _end(process)
        return _TIMEOUT, b"", f"it did not end within {call.seconds:g} seconds"
    out, err = said
    return process.returncode, out, err.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of a call outlives it, whatever happened to us."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None and not pipe.closed:
            pipe.close()


def _judged(call: Call, code: int, out: bytes, err: str) -> Answer:
    if code in call.ok:
        return Answer(code, out)
    places = _written(call)
    if space.explains(err, places):
        raise space.no_space(places)
    raise GitError(f"git {_verb(call.args)}: {_words(code, err)}", hint=_hint(err))


def _written(call: Call) -> list[Path]:
    """Where a call may have written to."""
    tree = layout.tree_around(call.cwd)
    own = [Path(call.env[name]) for name in ("GIT_DIR", "GIT_INDEX_FILE") if name in call.env]
    return [call.cwd, *own, *((tree.gitdir, tree.common) if tree else ())]


def _verb(args: Sequence[str]) -> str:
    return next((word for word in args if not word.startswith("-")), "")


def _words(code: int, err: str) -> str:
    said = " ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in err.splitlines() if line.strip())
    if said:
        return said[:2000]
    return f"it was killed by signal {-code}" if code < 0 else f"exit code {code} without a word"


def _hint(err: str) -> str:
    return (
        "Say `git config --global --add safe.directory PATH` if you trust its owner." if "safe.directory" in err else ""
    )


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(number) for number in version)


@cache
def check_version() -> None:
    """Once a process: git is there and new enough to merge in memory."""
    words = run(Path("/"), "version").text.split()
    found = tuple(int(part) for part in words[2].split(".")[:2] if part.isdigit())
    if found < MINIMUM:
        raise GitError(
            f"git {words[2]} is too old: {_dotted(MINIMUM)} or newer is needed to merge without a checkout.",
            hint="Install a newer git and start again.",
        )
