"""Children to try an adapter on, and ways to wait for what they do."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from codefleet.ports import Child, Job, Line

#: Nothing here takes long: this only guards against hanging.
DEADLINE = 30


def environment(**more: str) -> Mapping[str, str]:
    """What a child needs to find programs, and to be found by whoever looks for what a test left behind."""
    kept = {key: os.environ[key] for key in ("PATH", "CODEFLEET_TEST") if key in os.environ}
    return {**kept, **more}


def shell(script: str, cwd: Path, **given: Any) -> Job:
    """A job for `sh`."""
    return Job(**{"argv": ("sh", "-c", script), "cwd": cwd, "env": environment(), **given})


def python(script: str, cwd: Path, **given: Any) -> Job:
    """A job for a bare Python."""
    return Job(**{"argv": (sys.executable, "-S", "-I", "-c", script), "cwd": cwd, "env": environment(), **given})


async def printed(child: Child, offset: int = 0) -> list[bytes]:
    """All lines of a child that ends by itself."""
    return [line.data async for line in child.lines(offset)]


async def line_of(child: Child, wanted: bytes) -> Line:
    """The first line that is this, as soon as it is there."""
    async for line in child.lines():
        if line.data == wanted:
            return line
    raise AssertionError(f"{wanted!r} was never printed")


def alive(pid: int) -> bool:
    """Is there such a process, and is it no corpse?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody announces."""
    with anyio.fail_after(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what other processes do gives no event
            await anyio.sleep(0.005)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """A test's `kill`: the process may be gone already, and nobody's pid is never signalled."""
    if pid <= 1:
        raise ValueError(f"pid {pid} is nobody a test may kill")
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


DAEMONS = r"""
import os, signal, time
for scrubbed in (False, True, True):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            os.execve("/bin/sleep", ["sleep", "600"], {} if scrubbed else dict(os.environ))
        os._exit(0)
    os.wait()
while os.fstat(1).st_size < 3 * 2 or open("/proc/self/fd/1").read().count("\n") < 3:
    time.sleep(0.001)
"""
"""Starts three daemons that left the session and ignore TERM, two with an empty environment; prints their pids."""

FORK_CHAINS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
