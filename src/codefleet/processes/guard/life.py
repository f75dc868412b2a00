"""One guard keeps one child: it starts it, feeds it, ends it, records how it ended and proves that nothing is left.

All it knows lies in the spool, so another guard can go on when this one is killed.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal

from codefleet.processes.guard import birth, kernel, trees
from codefleet.processes.guard.ending import Ending
from codefleet.processes.guard.feed import Feed
from codefleet.processes.guard.records import VERSION, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DONE, BUSY = 0, 75
LINGER = 1.0
"""Seconds for databases and index locks to be put away once their program has ended."""
FLOOD_EVERY = 0.5
LEDGER_ENTRIES = 150


def guard(spool: str, pidfd: int, wakeup: int) -> int:
    """Keep the child of a spool until its tree is dead. After another guard's death a pidfd of the child, or -1."""
    try:
        os.chdir(spool)
        status = os.open("status", os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(status, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return DONE
    except BlockingIOError:
        return BUSY
    if os.fstat(status).st_nlink == 0:  # somebody made sure that nothing will ever run here
        return DONE
    record = Record(status)
    if record.fields.get("state") != "done":
        Life(record, wakeup).live(pidfd)
    return DONE


def wake_on_signals() -> int:
    """A descriptor that gives a byte for each SIGCHLD and SIGTERM; SIGINT and SIGHUP are for others."""
    wakeup, waker = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(waker, False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    return wakeup


class Awake:
    """Seconds that this guard could run in: a suspended or stopped machine uses up nobody's limit."""

    def __init__(self, used: float) -> None:
        self.used = used
        self._last = kernel.boottime()

    def count(self, at_most: float) -> None:
        now = kernel.boottime()
        self.used += min(max(now - self._last, 0.0), at_most)
        self._last = now


class Life:
    """From the first fork, or from where a dead guard left off, to the end of the whole tree."""

    def __init__(self, record: Record, wakeup: int) -> None:
        self.record, self.wakeup = record, wakeup
        self.job = job = record.job()
        self.control = os.open("ctl", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.outputs = [os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC) for name in ("out", "err")]
        self.feed = Feed() if job.stdin == "queue" else None
        self.ending = Ending(record)
        self.awake = Awake(record.number("used") / 1000)
        self.tree: trees.Tree
        self._me = {"v": VERSION, "guard": os.getpid(), "gstart": kernel.start_of(os.getpid())}
        self._heard = b""
        self._looked = kernel.boottime()
        self._every = 0.02

    def live(self, pidfd: int) -> None:
        """Start the child or take over the one that runs, and stay until nothing of it is left."""
        if self.record.fields or self.record.mark():
            self._adopt(pidfd)
            code = self.record.fields.get("code") or self._watch()
            if self.record.mark() or self.ending.word:
                self._finish(code)
                return
        if self._begin():
            self._finish(self._watch())

    # ------------------------------------------------------------------------------------------------- beginning

    def _begin(self) -> bool:
        """Fork the child. It waits until its pid is on record, so no death of ours can hide it."""
        released, release = os.pipe()
        became, becoming = os.pipe()
        queue = self.feed.queue if self.feed else -1
        try:
            pid = os.fork()
        except OSError as error:
            birth.could_not(self.record.fd, 126, f"fork: {error.strerror}")
            self._record("done", {"code": 126, "t0": kernel.wall(), "t1": kernel.wall()})
            return False
        if pid == 0:
            os.close(release)
            birth.become(self.job, released=released, status=self.record.fd, outputs=self.outputs, queue=queue)
        self.tree = trees.own(pid, self.wakeup, self.job.mark)
        here = dict(zip(("boot", "pidns"), kernel.here(), strict=True))
        self._record("starting", {"pid": pid, "start": self.tree.start, "infd": queue, "t0": kernel.wall(), **here})
        os.write(release, b"g")
        for fd in (released, release, becoming):
            os.close(fd)
        kernel.readable(became, 10)
        os.close(became)
        if not self.record.mark().startswith("failed"):
            self.record.put({"state": "running"})
        return True

    def _record(self, state: str, fields: Mapping[str, object], *, durable: bool = False) -> None:
        self.record.put({**self._me, "state": state, **fields}, durable=durable)

    def _adopt(self, pidfd: int) -> None:
        """Take over from a dead guard, possibly of another boot: then nothing of it can live."""
        record = self.record
        here = (record.fields.get("boot"), record.fields.get("pidns")) == kernel.here()
        pid, start = (record.number("pid"), record.number("start")) if here else (0, 0)
        ledger = _ledger(record.fields.get("tree", "")) if here else {}
        pidfd = pidfd if pidfd >= 0 else kernel.open_process(pid, start)
        self.tree = trees.AdoptedTree(pid, start, pidfd, ledger, self.job.mark)
        if self.feed:
            self.feed.resume(pidfd, pid, record.number("infd"), record.number("in"))
        state = record.fields.get("state", "running")
        state = "running" if state == "starting" and record.mark() == "begun" else state
        lost = {"ended": "machine"} if state == "running" and not here and not record.fields.get("ended") else {}
        self._record(state, {"adopted": record.number("adopted") + 1, **lost})

    # -------------------------------------------------------------------------------------------------- watching

    def _watch(self) -> str:
        """Until the child has ended; returns its code."""
        while not (code := self.tree.ended()):
            self._look()
            self._listen(self._pause())
        return code

    def _pause(self) -> float:
        """Seconds until something is due without being asked for."""
        pauses = [self._every, *([FLOOD_EVERY] if self.job.max_output else [])]
        if self.job.limit:
            pauses += [self.job.limit - self.awake.used, max(self.job.limit / 20, 0.05)]
        if self.ending.word:
            pauses.append(self.ending.next())
        return max(min(pauses), 0.01)

    def _listen(self, seconds: float) -> None:
        poll = select.poll()
        for fd in {self.control, self.wakeup, self.tree.fd} - {-1}:
            poll.register(fd, select.POLLIN)
        if self.feed and self.feed.blocked:
            poll.register(self.feed.pipe, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        self.awake.count(2 * seconds)
        if self.wakeup in ready and bytes([signal.SIGTERM]) in os.read(self.wakeup, 4096):
            self.ending.ask("stop", 5.0)
        if self.control in ready:
            self._obey(os.read(self.control, 4096))

    def _obey(self, said: bytes) -> None:
        *commands, self._heard = (self._heard + said).split(b"\n")
        for word, _, argument in (command.partition(b" ") for command in commands):
            if word == b"stop":
                self.ending.ask("stop", float(argument))

    def _look(self) -> None:
        """What is due now, whoever woke us."""
        if self.feed and self.feed.pump():
            self.record.put({"in": self.feed.place()})
        self._keep_the_limit()
        self._dam_the_flood()
        if kernel.boottime() - self._looked >= self._every:
            self._looked = kernel.boottime()
            self._every = min(2 * self._every, self.tree.EVERY)
            self._note_tree()
        self.ending.go_on(self.tree)

    def _keep_the_limit(self) -> None:
        limit = self.job.limit
        if not limit:
            return
        if int(self.awake.used * 1000) - self.record.number("used") >= 5000:
            self.record.put({"used": int(self.awake.used * 1000)})
        if self.awake.used >= limit and not self.ending.word:
            self.ending.ask("limit", self.job.grace)

    def _dam_the_flood(self) -> None:
        """Too much output is the end; far too much is the end at once."""
        bound = self.job.max_output
        size = sum(os.fstat(fd).st_size for fd in self.outputs) if bound else 0
        if size > bound:
            self.ending.ask("flood", 0 if size > 2 * bound else self.job.grace)

    def _note_tree(self) -> None:
        self.tree.look()
        noted = ",".join(f"{pid}:{start}" for pid, start in list(self.tree.ledger.items())[:LEDGER_ENTRIES])
        if noted != self.record.fields.get("tree", ""):
            self.record.put({"tree": noted})

    # ---------------------------------------------------------------------------------------------------- ending

    def _finish(self, code: str) -> None:
        """Record how it ended before anything else, then end what it left behind."""
        ended = {"code": code, "t1": self.record.number("t1") or kernel.wall()}
        if self.tree.empty():
            self._record("done", {"swept": self.record.number("swept"), **ended}, durable=True)
            return
        self._record("exited", ended, durable=True)
        self._note_tree()
        swept, left = trees.sweep(self.tree, min(LINGER, self.ending.grace))
        self._record("done", {"swept": swept + self.record.number("swept"), "left": left}, durable=True)


def _ledger(noted: str) -> dict[int, int]:
    pairs = [entry.split(":") for entry in noted.split(",") if entry]
    return {int(pid): int(start) for pid, start in pairs}
