"""Whose end a guard watches: a child of its own, or the one that a dead guard left. Both answer the same questions."""

from __future__ import annotations

import os
import signal
import time

from codefleet.processes.guard import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Tree(Protocol):
        """A process with everything that comes from it."""

        EVERY: float
        """Seconds between looks at what it has started, once it is no longer new."""
        pid: int
        start: int
        fd: int
        """Readable when it is worth asking `ended` again."""
        ledger: dict[int, int]
        """pid → start of the descendants seen so far."""

        def ended(self) -> str:
            """How it ended, once it has; empty while it lives."""
            ...

        def look(self) -> None:
            """Bring the ledger up to date."""
            ...

        def kill(self) -> None:
            """End the process itself by force."""
            ...

        def living(self) -> dict[int, int]:
            """After the end: what of it still lives."""
            ...

        def empty(self) -> bool:
            """After the end: is it certain that nothing of it lives?"""
            ...

        def pause(self, seconds: float) -> None:
            """This long, or until something may have changed."""
            ...


class OwnTree:
    """A child of ours. All that comes from it is our descendant, so a `wait` that knows no child proves emptiness."""

    EVERY = 2.0

    def __init__(self, pid: int, start: int, wakeup: int) -> None:
        self.pid, self.start, self.fd = pid, start, wakeup
        self.ledger: dict[int, int] = {}
        self._childless = False

    def ended(self) -> str:
        code = ""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return code
            if pid == 0:
                return code
            if pid == self.pid:
                code = str(os.waitstatus_to_exitcode(status))

    def look(self) -> None:
        self.ledger = {pid: start for pid, start in kernel.descendants(os.getpid()).items() if pid != self.pid}

    def kill(self) -> None:
        kernel.send(self.pid, self.start, signal.SIGKILL)

    def living(self) -> dict[int, int]:
        return kernel.descendants(os.getpid())

    def empty(self) -> bool:
        self.ended()
        return self._childless

    def pause(self, seconds: float) -> None:
        if kernel.readable(self.fd, seconds):
            os.read(self.fd, 4096)


class AdoptedTree:
    """What a dead guard left: known by a ledger of descendants and by a mark in their environment."""

    EVERY = 0.5

    def __init__(self, pid: int, start: int, pidfd: int, ledger: dict[int, int], mark: str) -> None:
        self.pid, self.start, self.fd = pid, start, pidfd
        self.ledger = ledger
        self._mark = mark
        self.look()

    def ended(self) -> str:
        if not kernel.has_ended(self.fd, self.pid, self.start):
            return ""
        return kernel.code_of_stranger(self.fd, self.pid, self.start)

    def look(self) -> None:
        known = self._alive()
        roots = [*known, *([self.pid] if kernel.lives(self.pid, self.start) else [])]
        self.ledger = known | kernel.descendants(*roots)

    def _alive(self) -> dict[int, int]:
        return {pid: start for pid, start in self.ledger.items() if kernel.lives(pid, start)}

    def kill(self) -> None:
        """Its orphans would not come to us: so it is halted, its descendants end first, and they do come to it."""
        kernel.send(self.pid, self.start, signal.SIGSTOP)
        for _ in range(500):
            below = kernel.descendants(self.pid)
            if not below:
                break
            self.ledger |= below
            for pid, start in below.items():
                kernel.send(pid, start, signal.SIGKILL)
            time.sleep(0.002)
        kernel.send(self.pid, self.start, signal.SIGKILL)

    def living(self) -> dict[int, int]:
        self.ledger |= kernel.carrying(self._mark)
        self.look()
        return dict(self.ledger)

    def empty(self) -> bool:
        return not self.living()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class LooseTree(AdoptedTree):
    """A child of ours on a system where its orphans do not come to us. Its end is certain; that nothing of it is left
    is what we see, not proved."""

    EVERY = 2.0

    def __init__(self, pid: int, start: int, wakeup: int, mark: str) -> None:
        self.pid, self.start, self.fd = pid, start, wakeup
        self.ledger = {}
        self._mark = mark

    def ended(self) -> str:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return str(os.waitstatus_to_exitcode(status)) if pid else ""

    def look(self) -> None:
        """What stays in the child's own group is found after its end too."""
        known = self._alive()
        self.ledger = known | kernel.descendants(*known, self.pid)

    def empty(self) -> bool:
        """What forks faster than one can look is never seen; if it stayed in the child's group, one stroke ends it."""
        if self.living():
            return False
        try:  # noqa: SIM105 - contextlib would cost every guard its memory
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        return True


def own(pid: int, wakeup: int, mark: str) -> Tree:
    """The tree of a child that was just forked."""
    start = kernel.start_of(pid)
    return LooseTree(pid, start, wakeup, mark) if kernel.PORTABLE else OwnTree(pid, start, wakeup)


def sweep(tree: Tree, patience: float) -> tuple[int, int]:
    """End what is left of a tree whose root has ended: ask, then kill. How many there were, and how many remain
    because they belong to somebody else."""
    begun = kernel.boottime()
    seen: dict[int, int] = {}
    foreign: set[int] = set()
    while not tree.empty():
        late = kernel.boottime() - begun - patience
        for pid, start in tree.living().items():
            if late >= 0 or seen.get(pid) != start:
                _end(pid, start, force=late >= 0, foreign=foreign)
            seen[pid] = start
        if late > 10 and foreign.issuperset(tree.living()):
            return len(seen), len(tree.living())
        tree.pause(0.002 if late >= 0 else 0.02)
    return len(seen), 0


def _end(pid: int, start: int, *, force: bool, foreign: set[int]) -> None:
    if not kernel.send(pid, start, signal.SIGKILL if force else signal.SIGTERM):
        foreign.add(pid)
