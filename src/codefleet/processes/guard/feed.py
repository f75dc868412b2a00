"""The child's standard input: whole lines from a queue file into a pipe that outlives everybody but the child."""

from __future__ import annotations

import fcntl
import os

from codefleet.processes.guard import kernel
from codefleet.processes.guard.records import read_file

_HIGH = 200
"""The descriptor that the child inherits lies above those that programs give a meaning."""


class Feed:
    """Moves lines with `sendfile`, which moves the place in the queue in the same call. The child inherits the
    descriptor and so keeps that place for the next guard: a killed guard neither loses nor doubles a line."""

    def __init__(self) -> None:
        queue = os.open("in", os.O_RDONLY | os.O_CLOEXEC)
        self.queue = fcntl.fcntl(queue, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(queue)
        self.pipe = os.open("stdin", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.blocked = False
        """The pipe is full; it says when there is room."""
        self._whole = 0

    def resume(self, pidfd: int, pid: int, inherited: int, recorded: int) -> None:
        """Go on where a dead guard stopped."""
        taken = kernel.take_fd(pidfd, inherited)
        if taken >= 0 and os.path.samestat(os.fstat(taken), os.fstat(self.queue)):
            self.queue = taken
        else:
            os.lseek(self.queue, max(recorded, self._place(pid, inherited)), os.SEEK_SET)

    def _place(self, pid: int, inherited: int) -> int:
        """The place that the child's descriptor has; 0 if the child has closed it."""
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{inherited}"), os.fstat(self.queue)):  # noqa: PTH116 - light
                return int(read_file(f"/proc/{pid}/fdinfo/{inherited}").split()[1])
        except OSError:
            pass
        return 0

    def place(self) -> int:
        """How much of the queue was moved."""
        return os.lseek(self.queue, 0, os.SEEK_CUR)

    def pump(self) -> bool:
        """Move what is whole, as far as there is room; was anything moved?"""
        self.blocked = False
        begun = at = self.place()
        self._whole = max(self._whole, at)
        end = self._whole_lines()
        while at < end and not self.blocked:
            try:
                at += os.sendfile(self.pipe, self.queue, None, min(end - at, 1 << 16))
            except BlockingIOError:
                self.blocked = True
        return at > begun

    def _whole_lines(self) -> int:
        """Where the last whole line ends; a line that is still being written waits."""
        at = self._whole
        while chunk := os.pread(self.queue, 1 << 16, at):
            newline = chunk.rfind(b"\n")
            if newline >= 0:
                self._whole = at + newline + 1
            at += len(chunk)
        return self._whole
