"""What `kernel` promises, on systems with POSIX and `ps` alone, and kqueue where it is macOS.

Written for macOS and untested there; it is tried on Linux, where the kqueue half never runs. What it can not promise:

- That nothing is left. Orphans do not come to their guard, so what comes of a child is known by looking: who its parent
  was, its group, the mark in its environment. What leaves all three between two looks lives on, and nobody is told.
- How a child ended whose guard was killed: only kqueue tells that, and only if the next guard came before the end.
- Who is who within a second: a start is known to the second, and a signal goes to a pid.
- That input is given once: a guard killed between giving lines and noting it gives them again.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from binascii import crc32

PS = "/bin/ps"
RECENT = 0.25
"""Seconds for which an answer of `ps` is good enough to say whether a known process is still itself."""
_TABLE = [word for name in ("pid", "ppid", "pgid", "state", "lstart") for word in ("-o", f"{name}=")]
_ENVIRONMENTS = ["-Aww", "-E"] if sys.platform == "darwin" else ["axeww"]
_PLAIN = {"LC_ALL": "C", "TZ": "UTC"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Row(NamedTuple):
        """One process."""

        parent: int
        group: int
        state: str
        start: int
else:
    from collections import namedtuple

    Row = namedtuple("Row", "parent group state start")  # noqa: PYI024 - typing costs every guard its memory


def _ps(*arguments: str) -> tuple[bytes, int]:
    """What `ps` prints, and the pid that it had."""
    source, sink = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, sink, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    with os.fdopen(source, "rb") as printed:
        try:
            pid = os.posix_spawn(PS, ["ps", *arguments], _PLAIN, file_actions=actions)
        finally:
            os.close(sink)
        text = printed.read()
    os.waitpid(pid, 0)
    return text, pid


class _Processes:
    """All processes, as `ps` last listed them."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._at = 0.0

    def rows(self, age: float = 0.0) -> dict[int, Row]:
        """Not older than this, unless there is no room for a `ps`."""
        if not self._rows or time.monotonic() - self._at >= age:
            try:
                self._rows = _listed()
            except BlockingIOError:
                if not self._rows:
                    raise
            self._at = time.monotonic()
        return self._rows


_PROCESSES = _Processes()


def _listed() -> dict[int, Row]:
    text, own = _ps("-A", *_TABLE)
    found = {}
    for line in text.splitlines():
        pid, parent, group, state, begun = line.split(None, 4)
        found[int(pid)] = Row(int(parent), int(group), state[:1].decode(), crc32(begun.strip()) or 1)
    if os.getpid() not in found:  # to believe it would be to take everybody for dead
        raise OSError(f"{PS} does not list the processes of this system")
    found.pop(own, None)
    return found


def _row(pid: int) -> Row | None:
    """What is known of a process; asked again where the last answer does not know it."""
    if pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return _PROCESSES.rows(RECENT).get(pid) or _PROCESSES.rows().get(pid)


@functools.cache
def here() -> tuple[str, str]:
    """Where pids mean what they mean: this boot of the machine, told by the start of its first process."""
    first = _row(1)
    if first is None:
        raise OSError(f"{PS} does not list process 1")
    return f"{first.start:x}", "0"


def start_of(pid: int) -> int:
    """What stands for the start of a process; 0 if there is none."""
    found = _row(pid)
    return found.start if found else 0


def state_of(pid: int, start: int) -> str:
    """The state letter of exactly this process; empty when it is gone."""
    found = _row(pid)
    return found.state if found and found.start == start else ""


def lives(pid: int, start: int) -> bool:
    """Exactly this process is there and not a corpse."""
    return pid > 1 and state_of(pid, start) not in {"", "Z", "X"}


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [other for other, row in _PROCESSES.rows().items() if row.parent == pid]


def descendants(*roots: int) -> dict[int, int]:
    """All living processes below these or in a group with one of them, with their starts. A group is told by the pid of
    who founded it, so those who stay in that of a root are found when it has ended."""
    rows = {pid: row for pid, row in _PROCESSES.rows().items() if row.state not in {"Z", "X"} and pid != os.getpid()}
    kin = set(roots)
    groups = kin | {rows[pid].group for pid in roots if pid in rows}
    while more := {pid for pid, row in rows.items() if pid not in kin and (row.parent in kin or row.group in groups)}:
        kin |= more
        groups |= {rows[pid].group for pid in more}
    return {pid: rows[pid].start for pid in kin.difference(roots) if pid in rows}


def carrying(mark: str) -> dict[int, int]:
    """All living processes that show this variable in the environment that they began with. macOS hides that of its own
    programs."""
    wanted = b" " + os.fsencode(mark)
    lines = _ps(*_ENVIRONMENTS, "-o", "pid=", "-o", "command=")[0].splitlines()
    marked = [int(line.split(None, 1)[0]) for line in lines if wanted in line]
    rows = _PROCESSES.rows()
    return {pid: rows[pid].start for pid in marked if pid in rows and rows[pid].state not in {"Z", "X"}}


def send(pid: int, start: int, number: int) -> bool:
    """Signal this process; False only if we are not allowed to. It may be gone already."""
    if pid <= 1 or pid == os.getpid():
        raise ValueError(f"pid {pid} is nobody we may signal")
    try:
        if start_of(pid) == start:
            os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


if sys.platform == "darwin":
    import select

    _NOTE_EXITSTATUS = 0x04000000

    def open_process(pid: int, start: int) -> int:
        """A kqueue that is readable once exactly this process has ended; -1 if it has. It stays in this process."""
        with_status = select.KQ_NOTE_EXIT | _NOTE_EXITSTATUS
        queue = select.kqueue()
        try:
            event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, with_status)
            queue.control([event], 0)
            return os.dup(queue.fileno()) if lives(pid, start) else -1
        except OSError:
            return -1
        finally:
            queue.close()

    def code_of_stranger(pidfd: int, pid: int, start: int) -> str:  # noqa: ARG001 - the kqueue knows
        """How a process that is not our child has ended: its code, or `unknown`, never a guess."""
        if pidfd < 0:
            return "unknown"
        queue = select.kqueue.fromfd(os.dup(pidfd))
        try:
            told = [event.data for event in queue.control(None, 1, 0) if event.fflags & _NOTE_EXITSTATUS]
        finally:
            queue.close()
        return str(os.waitstatus_to_exitcode(told[0] & 0xFFFF)) if told else "unknown"

else:

    def open_process(pid: int, start: int) -> int:  # noqa: ARG001 - as on a system that can
        """No process can be held open: whoever waits for one has to look."""
        return -1

    def code_of_stranger(pidfd: int, pid: int, start: int) -> str:  # noqa: ARG001 - likewise
        """How a process that is not our child has ended can not be known."""
        return "unknown"


def adopt_orphans() -> None:
    """There is no way: descendants whose parent dies go to the first process."""


def take_fd(pidfd: int, number: int) -> int:  # noqa: ARG001 - as on a system that can
    """There is no duplicate of another process's descriptor."""
    return -1


def place_of(pid: int, number: int, file: int) -> int:  # noqa: ARG001 - likewise
    """The place that another process's descriptor has is not to be seen."""
    return 0


def move(pipe: int, queue: int, most: int) -> int:
    """Bytes of the queue into the pipe; the queue's place follows."""
    at = os.lseek(queue, 0, os.SEEK_CUR)
    given = os.write(pipe, os.pread(queue, most, at))
    os.lseek(queue, at + given, os.SEEK_SET)
    return given
