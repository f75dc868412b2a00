"""Which engines of this host live: a lock file each, freed by the kernel however its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from codefleet.core.errors import AlreadyRunning
from codefleet.core.layout import Home

PROBED = 0.5
"""Seconds to try for a lock that only somebody's question can hold, for a moment."""


class FilePresence:
    """`ports.Presence` in a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._held: dict[str, int] = {}
        self._start = -1

    def enter(self, engine: str) -> None:
        if engine in self._held:
            return
        path = self._home.engine_lock(engine)
        deadline = time.monotonic() + PROBED
        while (fd := _lock(path)) < 0:
            if time.monotonic() > deadline:
                raise AlreadyRunning(f"the engine {engine} runs already ({_holder(path)})", hint="give this one a name")
            time.sleep(0.005)
        self._held[engine] = fd

    def leave(self, engine: str) -> None:
        fd = self._held.pop(engine, -1)
        if fd < 0:
            return
        path = self._home.engine_lock(engine)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: somebody else's business
            path.parent.rmdir()
        os.close(fd)

    def only(self) -> None:
        if self._start >= 0:
            return
        self._start = _lock(self._home.start_lock)
        if self._start < 0:
            holder = _holder(self._home.start_lock)
            raise AlreadyRunning(
                f"an engine runs already on this home ({holder})",
                hint="`codefleet start --name NAME` runs another one beside it",
            )

    def alive(self, engine: str) -> bool:
        try:
            fd = os.open(self._home.engine_lock(engine), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


def _lock(path: Path) -> int:
    """A descriptor that holds the lock, or -1 if somebody else does. The holder's pid is written for people."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _holder(path: Path) -> str:
    """Who holds a lock, in words."""
    with contextlib.suppress(OSError):
        if pid := path.read_text().strip():
            return f"pid {pid}"
    return "it is just starting"
