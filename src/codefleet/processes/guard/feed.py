"""The child's standard input: whole lines from a queue file into a pipe that outlives everybody but the child."""

from __future__ import annotations

import fcntl
import os

from codefleet.processes.guard import kernel

_HIGH = 200
"""The descriptor that the child inherits lies above those that programs give a meaning."""


class Feed:
    """Moves lines, and with them the place in the queue. The child inherits the descriptor and so keeps that place for
    the next guard: where both happen in one call, a killed guard neither loses nor doubles a line."""

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
            os.lseek(self.queue, max(recorded, kernel.place_of(pid, inherited, self.queue)), os.SEEK_SET)

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
                at += kernel.move(self.pipe, self.queue, min(end - at, 1 << 16))
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
