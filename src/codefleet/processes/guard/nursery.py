"""Forks guards on request: loaded once, so a guard starts in a millisecond and shares its memory.

One guard is always ready, forked ahead of the next request. The nursery lives as long as the engine that made it: the end
of the socket is the end of it, and of the guard without work. Guards at work live on.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys

from codefleet.processes.guard import kernel
from codefleet.processes.guard.life import guard, wake_on_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CRASHED = 70
KEEP_CORPSES = 10.0
"""Seconds that an orphan's corpse stays unburied, so that an adopting guard can still read how it ended."""
REQUEST = 1 << 16
BREATH = 3
"""Milliseconds that a guard which has just got work may have for itself before the next one is forked."""


class Nursery:
    def __init__(self, fd: int) -> None:
        self.requests = socket.socket(fileno=fd)
        self.wakeup = wake_on_signals()
        self.ready: tuple[int, socket.socket] | None = None
        self.guards: set[int] = set()
        self.orphaned = False
        self.corpses: dict[int, float] = {}

    def serve(self) -> None:
        """One request a message: the spool's path, and a pidfd of its child where a guard has died before. The answer is
        the guard's pid, or 0 if there is no room for a process."""
        poll = select.poll()
        poll.register(self.requests.fileno(), select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        while True:
            events = dict(poll.poll(self._pause()))
            if self.wakeup in events and bytes([signal.SIGTERM]) in os.read(self.wakeup, 4096):
                break
            self._bury()
            asked = events.get(self.requests.fileno(), 0)
            if asked & select.POLLHUP or (asked and not self._serve_one()):
                break  # what a dead engine still had asked for is not begun: the next one decides
            if not events and not self.ready:
                self.ready = self._fork()
        self._dismiss()

    def _pause(self) -> int | None:
        if not self.ready:
            return BREATH
        return 1000 if self.corpses else None

    def _serve_one(self) -> bool:
        """Give a guard its work; False when nobody will ask again."""
        spool, pidfds, _, _ = socket.recv_fds(self.requests, REQUEST, 1)
        if not spool:
            return False
        pid = self._hand_over(spool, pidfds)
        for fd in pidfds:
            os.close(fd)
        try:
            self.requests.send(pid.to_bytes(4, sys.byteorder))
        except OSError:
            return False
        return True

    def _hand_over(self, spool: bytes, pidfds: list[int]) -> int:
        """The guard that took it; one that was killed while it waited is passed over."""
        for _ in range(2):
            waiting, self.ready = self.ready or self._fork(), None
            if waiting is None:
                break
            with waiting[1] as link:
                try:
                    socket.send_fds(link, [spool], pidfds) if pidfds else link.send(spool)
                except OSError:
                    continue
            return waiting[0]
        return 0

    def _fork(self) -> tuple[int, socket.socket] | None:
        """A guard that waits for work; None if there is no room for a process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, self.requests.type)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return None
        if pid == 0:
            ours.close()
            self._be_a_guard(theirs)
        theirs.close()
        self.guards.add(pid)
        return pid, ours

    def _be_a_guard(self, link: socket.socket) -> NoReturn:
        code = CRASHED
        spool = b""
        try:
            self.requests.close()
            os.setsid()
            kernel.adopt_orphans()
            wakeup = wake_on_signals()
            spool, pidfds, _, _ = socket.recv_fds(link, REQUEST, 1)
            link.close()
            code = guard(os.fsdecode(spool), pidfds[0] if pidfds else -1, wakeup) if spool else 0
        finally:
            if code == CRASHED:
                _complain(os.fsdecode(spool))
            os._exit(code)

    def _bury(self) -> None:
        """Reap guards at once. Orphans of dead guards come to us too: their corpses stay for a while."""
        for pid in list(self.guards):
            dead, status = os.waitpid(pid, os.WNOHANG)
            if dead:
                self.guards.discard(pid)
                self.orphaned = self.orphaned or status != 0
        if not self.orphaned:
            return
        now = kernel.boottime()
        strangers = set(kernel.children(os.getpid())) - self.guards
        for pid in strangers:
            if kernel.state_of(pid, kernel.start_of(pid)) == "Z":
                self.corpses.setdefault(pid, now)
        for pid in [pid for pid, since in self.corpses.items() if now - since > KEEP_CORPSES]:
            os.waitpid(pid, os.WNOHANG)
            del self.corpses[pid]
        self.orphaned = bool(strangers)

    def _dismiss(self) -> None:
        """Let go of the guard that has no work, and see it off."""
        if self.ready:
            self.ready[1].close()
            os.waitpid(self.ready[0], 0)


def _complain(spool: str) -> None:
    """Say what went wrong where somebody will look for it."""
    try:
        fd = os.open(f"{spool}/guard.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(fd, 2)
    except OSError:
        return
    sys.excepthook(*sys.exc_info())


def main(fd: int) -> None:
    """The whole life of a nursery, on its end of the engine's socket."""
    for number in range(1, signal.NSIG):  # what the engine's parent had it ignore is not for children
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # that a socket's other end is gone is an error like others
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    kernel.adopt_orphans()
    kernel.here()
    gc.collect()
    gc.freeze()
    gc.disable()
    Nursery(fd).serve()
