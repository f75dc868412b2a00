"""Forks guards on request: loaded once, so a guard starts in a millisecond and shares its memory.

It lives as long as the engine that made it: the end of the socket is the end of it. Its guards live on.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys

from codefleet.processes.guard import kernel
from codefleet.processes.guard.life import guard

CRASHED = 70
KEEP_CORPSES = 10.0
"""Seconds that an orphan's corpse stays unburied, so that an adopting guard can still read how it ended."""


class Nursery:
    def __init__(self, fd: int) -> None:
        self.requests = socket.socket(fileno=fd)
        self.wakeup, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.guards: set[int] = set()
        self.corpses: dict[int, float] = {}

    def serve(self) -> None:
        """One request a message: the spool's path, and a pidfd of its child where a guard has died before. The answer is
        the guard's pid, or 0 if there is no room for a process."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.requests.fileno(), select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        while True:
            ready = dict(poll.poll(1000 if self.corpses else None))
            if self.wakeup in ready:
                os.read(self.wakeup, 4096)
            self._bury()
            asked = ready.get(self.requests.fileno(), 0)
            if asked & select.POLLHUP or (asked and not self._take()):
                return  # what a dead engine still had asked for is not begun: the next one decides

    def _take(self) -> bool:
        """Serve one request; False when nobody will ask again."""
        spool, ancillary, _, _ = self.requests.recvmsg(1 << 16, socket.CMSG_SPACE(4))
        if not spool:
            return False
        pidfd = int.from_bytes(ancillary[0][2][:4], sys.byteorder) if ancillary else -1
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            self._be_a_guard(os.fsdecode(spool), pidfd)
        if pid > 0:
            self.guards.add(pid)
        if pidfd >= 0:
            os.close(pidfd)
        return self._answer(max(pid, 0))

    def _answer(self, pid: int) -> bool:
        try:
            self.requests.send(pid.to_bytes(4, sys.byteorder))
        except OSError:
            return False
        return True

    def _be_a_guard(self, spool: str, pidfd: int) -> None:
        code = CRASHED
        try:
            self.requests.close()
            os.setsid()
            code = guard(spool, pidfd)
        except BaseException:  # noqa: BLE001 - the traceback goes to the spool; the engine sees a dead guard
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _bury(self) -> None:
        """Reap guards at once. Orphans of dead guards come to us too: their corpses stay for a while."""
        now = kernel.boottime()
        for pid in list(self.guards):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.guards.discard(pid)
        for pid in set(kernel.children(os.getpid())) - self.guards:
            found = kernel.stat(pid)
            if found and found[0] == "Z" and now - self.corpses.setdefault(pid, now) > KEEP_CORPSES:
                os.waitpid(pid, os.WNOHANG)
                del self.corpses[pid]


def main(fd: int) -> None:
    """The whole life of a nursery, on its end of the engine's socket."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kernel.adopt_orphans()
    gc.collect()
    gc.freeze()
    gc.disable()
    Nursery(fd).serve()
