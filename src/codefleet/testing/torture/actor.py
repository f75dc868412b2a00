"""What a tortured agent runs. It writes down in a ledger what really happened, so that the fleet's word can be held to it.

    actor.py LEDGER write [FOLDER]    a file of unheard-of content, then its entry
    actor.py LEDGER stray             stay for ever, out of the session, holding the task's lock, and write now and then
    actor.py LEDGER exit CODE         say with which code the agent will exit now

Every entry is one line, appended whole. It is started often and imports little.
"""

# ruff: noqa: PTH103, PTH109, PTH118, PTH123

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable

RUN = os.environ.get("CODEFLEET_RUN", "").rpartition("/")[2]
TASK = RUN.rpartition(".")[0]
MOST_LIVES = 60
"""Seconds after which a stray gives up: a torture that was itself killed leaves nothing behind."""


def born(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def enter(ledger: str, kind: str, **data: object) -> None:
    entry = {"kind": kind, "run": RUN, "task": TASK, "at": time.time(), "cwd": os.getcwd(), **data}
    line = json.dumps(entry).encode() + b"\n"
    fd = os.open(os.path.join(ledger, "ledger.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line)
    os.close(fd)


def write(ledger: str, folder: str = "work") -> None:
    """A new file that nobody else writes; it counts from the moment that it is complete."""
    os.makedirs(folder, exist_ok=True)
    text = f"{RUN} {os.urandom(16).hex()}\n".encode()
    path = os.path.join(folder, f"{RUN}-{os.urandom(4).hex()}.txt")
    with open(path + ".part", "wb") as file:
        file.write(text)
    os.rename(path + ".part", path)  # noqa: PTH104
    blob = hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()  # noqa: S324  git's own name of the content
    enter(ledger, "wrote", path=path, blob=blob)


def stray(ledger: str) -> None:
    """Hold the task's lock for as long as we live; whoever finds it taken found a second agent of the task."""
    agent = os.getppid()
    lock = os.open(os.path.join(ledger, f"{TASK}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    mine = json.dumps({"run": RUN, "pid": agent, "born": born(agent), "cwd": os.getcwd()}).encode()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = json.loads(os.pread(lock, 4096, 0) or b"{}")
        alive = bool(other) and born(other["pid"]) == other["born"] != 0
        enter(ledger, "met", other=other, alive=alive)
        return
    os.ftruncate(lock, 0)
    os.pwrite(lock, mine, 0)
    enter(ledger, "stray", pid=os.getpid(), agent=agent)
    for _ in range(MOST_LIVES):
        time.sleep(1)


def leave(ledger: str, code: str) -> None:
    enter(ledger, "leaving", agent=os.getppid(), code=int(code))


if __name__ == "__main__":
    acts: dict[str, Callable[..., None]] = {"write": write, "stray": stray, "exit": leave}
    acts[sys.argv[2]](sys.argv[1], *sys.argv[3:])
