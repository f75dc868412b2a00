"""The wake file: one byte is written to it after a commit, and whoever watches it looks at the store."""

from __future__ import annotations

import ctypes
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio

#: Seconds between two looks of somebody who waits: the net below the wake file.
POLL = 0.25

_IN_MODIFY = 0x2


class Wake:
    """Writes the byte, losing one does no harm, and says when somebody wrote one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._watcher: _Watcher | None = None
        self._turn = anyio.Lock()

    def ring(self) -> None:
        with suppress(OSError):
            os.pwrite(self._file, b".", 0)

    async def watch(self, ring: Callable[[], None]) -> None:
        """Call `ring` whenever somebody wrote to the file, until cancelled. Where the system has no means: never.

        One of those who watch does it for all. The watcher is kept, for closing one takes the kernel long.
        """
        async with self._turn:
            self._watcher = self._watcher or _open(self._path)
            while self._watcher is not None:
                await anyio.wait_readable(self._watcher)
                self._watcher.clear()
                ring()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        os.close(self._file)


if sys.platform == "linux":

    class _Watcher:
        """Readable when the file was written to."""

        def __init__(self, path: Path) -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            self._fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            if self._fd < 0:
                raise OSError(ctypes.get_errno(), "inotify")
            if libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY) < 0:
                self.close()
                raise OSError(ctypes.get_errno(), "inotify", str(path))

        def fileno(self) -> int:
            return self._fd

        def clear(self) -> None:
            with suppress(BlockingIOError):
                os.read(self._fd, 4096)

        def close(self) -> None:
            os.close(self._fd)

else:

    class _Watcher:
        """Readable when the file was written to."""

        def __init__(self, path: Path) -> None:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._queue = select.kqueue()
            flags = select.KQ_EV_ADD | select.KQ_EV_CLEAR
            event = select.kevent(self._file, select.KQ_FILTER_VNODE, flags, select.KQ_NOTE_WRITE)
            self._queue.control([event], 0)

        def fileno(self) -> int:
            return int(self._queue.fileno())

        def clear(self) -> None:
            self._queue.control(None, 8, 0)

        def close(self) -> None:
            self._queue.close()
            os.close(self._file)


def _open(path: Path) -> _Watcher | None:
    # Too few watches left, or no file: the poll does it.
    try:
        return _Watcher(path)
    except OSError:
        return None
