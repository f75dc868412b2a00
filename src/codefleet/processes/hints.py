"""Says when something in a spool may have changed: one inotify for all of them. A hint; the truth is in the files."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from pathlib import Path

import anyio

from codefleet.processes.guard import kernel

_LIBC = ctypes.CDLL(None, use_errno=True)
_MODIFIED = 0x2
_HEAD = struct.Struct("iIII")
BLIND = 0.05
"""Seconds between looks where there is no inotify."""


class Hint:
    """Lets tasks wait until one spool, or a process that belongs to it, may have changed."""

    def __init__(self, watch: int) -> None:
        self.watch = watch
        self._status, self._output = anyio.Event(), anyio.Event()

    def give(self, file: bytes = b"status") -> None:
        """A file was written. Who reads output looks at the status too."""
        if file == b"status":
            event, self._status = self._status, anyio.Event()
            event.set()
        if file in {b"status", b"out"}:
            event, self._output = self._output, anyio.Event()
            event.set()

    def next(self) -> anyio.Event:
        """The next change of the status. To be taken before it is read, so that none is missed in between."""
        return self._status

    def next_output(self) -> anyio.Event:
        """The next change of status or output, likewise."""
        return self._output

    async def wait(self, change: anyio.Event, seconds: float) -> None:
        """Until this change, or this long."""
        with anyio.move_on_after(seconds if self.watch >= 0 else min(seconds, BLIND)):
            await change.wait()


class Held:
    """A process held open: its end gives the hint, and how it ended can still be read afterwards. Where the system opens
    no process, its end is seen by looking."""

    def __init__(self, hint: Hint) -> None:
        self.fd = -1
        self._hint = hint
        self.who = (0, 0)
        """Pid and start."""
        self._watched = False

    def hold(self, pid: int, start: int) -> bool:
        """Hold this process instead of another; False when it is held already."""
        if (pid, start) == self.who:
            return False
        self.drop()
        self.who = (pid, start)
        self.fd = kernel.open_process(pid, start)
        if self.fd >= 0:
            asyncio.get_running_loop().add_reader(self.fd, self._ended)
            self._watched = True
        return True

    @property
    def ended(self) -> bool:
        return kernel.has_ended(self.fd, *self.who)

    def _ended(self) -> None:
        self._unwatch()
        self._hint.give()

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self.fd)
        self._watched = False

    def drop(self) -> None:
        self._unwatch()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Hints:
    """All hints of one event loop. Descriptors are watched by the loop itself: the port has no task to wait in."""

    def __init__(self) -> None:
        self._fd = -1
        self._hints: dict[int, set[Hint]] = {}

    def open(self) -> None:
        if self._fd < 0 and not kernel.PORTABLE:
            self._fd = int(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
        self._fd = -1
        self._hints.clear()

    def of(self, folder: Path) -> Hint:
        """A hint for a spool that exists; without inotify it merely waits."""
        watch = self._fd
        if watch >= 0:
            watch = int(_LIBC.inotify_add_watch(self._fd, os.fsencode(folder), _MODIFIED))
        hint = Hint(watch)
        if watch >= 0:
            self._hints.setdefault(watch, set()).add(hint)
        return hint

    def drop(self, hint: Hint) -> None:
        others = self._hints.get(hint.watch, set())
        others.discard(hint)
        if not others and self._hints.pop(hint.watch, None) is not None:
            _LIBC.inotify_rm_watch(self._fd, hint.watch)
        hint.watch = -1
        hint.give()  # whoever waits for it looks once more by himself

    def _read(self) -> None:
        try:
            raw = os.read(self._fd, 1 << 16)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return
            raise
        for watch, file in _events(raw):
            for hint in self._hints.get(watch, ()) if watch >= 0 else self._everybody():
                hint.give(file)

    def _everybody(self) -> list[Hint]:
        """Who is concerned when more has happened than the kernel could remember."""
        return [hint for hints in self._hints.values() for hint in hints]


def _events(raw: bytes) -> set[tuple[int, bytes]]:
    """Which files changed, each once."""
    found = set()
    at = 0
    while at < len(raw):
        watch, _, _, length = _HEAD.unpack_from(raw, at)
        at += _HEAD.size + length
        found.add((watch, raw[at - length : at].rstrip(b"\0") or b"status"))
    return found
