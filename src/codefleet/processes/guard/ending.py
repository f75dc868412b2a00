"""The way out of a child that was asked to end: interrupt, terminate, kill."""

from __future__ import annotations

import os
import signal

from codefleet.processes.guard import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from codefleet.processes.guard.records import Record
    from codefleet.processes.guard.trees import Tree


class Ending:
    """Who asked, when, and how patient to be. It stands on record, so the next guard goes on with it."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.word = record.fields.get("ended", "")
        """`stop`, `limit` or `flood`; empty: nobody asked."""
        self._since = record.number("since") / 1000
        self.grace = record.number("grace") / 1000 if self.word else float("inf")
        self._done = 0

    def ask(self, word: str, grace: float) -> None:
        """Begin to end it. Asked again, it can only become more urgent."""
        now = kernel.boottime()
        if not self.word:
            self.word, self._since, self.grace = word, now, grace
        elif self._since + self.grace > now + grace:
            self.grace = max(now + grace - self._since, 0.0)
        self._record.put({"ended": self.word, "since": int(self._since * 1000), "grace": int(self.grace * 1000)})

    def _steps(self) -> tuple[float, float, float]:
        """When to interrupt, to terminate, to kill."""
        return self._since, self._since + self.grace, self._since + self.grace + min(self.grace, 2.0)

    def next(self) -> float:
        """Seconds to the next step."""
        now = kernel.boottime()
        return min([step - now for step in self._steps() if step > now], default=0.1)

    def go_on(self, tree: Tree) -> None:
        """Take the steps that are due."""
        if not self.word:
            return
        due = sum(step <= kernel.boottime() for step in self._steps())
        if due == 3:
            tree.kill()
        elif due > self._done:
            self._tell(tree, due)
        self._done = due

    def _tell(self, tree: Tree, step: int) -> None:
        """The child alone is interrupted, so it can end its tools in order; all of them are terminated."""
        if step == 1:
            kernel.send(tree.pid, tree.start, signal.SIGINT)
            return
        tree.look()
        for pid, start in {**tree.ledger, tree.pid: tree.start}.items():
            if pid != os.getpid():
                kernel.send(pid, start, signal.SIGTERM)
