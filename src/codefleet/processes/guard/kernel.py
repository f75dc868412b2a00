"""What the kernel says of processes, and the one function that signals them.

A process is its pid together with its start: a pid alone may be somebody else's by now. There are two ways to ask: `linux`,
on which all promises rest, and `portable` for other systems, which says what it can not promise.
"""

from __future__ import annotations

import os
import select
import sys
import time

from codefleet.processes.guard.records import read_file

PORTABLE = sys.platform != "linux" or "CODEFLEET_TEST_PORTABLE" in os.environ
"""This system is asked the portable way."""

if PORTABLE:
    from codefleet.processes.guard.portable import (
        adopt_orphans,
        carrying,
        children,
        code_of_stranger,
        descendants,
        here,
        lives,
        move,
        open_process,
        place_of,
        send,
        start_of,
        state_of,
        take_fd,
    )
else:
    from codefleet.processes.guard.linux import (
        adopt_orphans,
        carrying,
        children,
        code_of_stranger,
        descendants,
        here,
        lives,
        move,
        open_process,
        place_of,
        send,
        start_of,
        state_of,
        take_fd,
    )

__all__ = [
    "PORTABLE",
    "adopt_orphans",
    "boottime",
    "carrying",
    "children",
    "code_of_stranger",
    "descendants",
    "has_ended",
    "here",
    "lives",
    "move",
    "open_process",
    "place_of",
    "readable",
    "send",
    "start_of",
    "state_of",
    "take_fd",
    "wall",
]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the latter counts a suspended macOS too


def readable(fd: int, seconds: float = 0) -> bool:
    """Something can be read there within this time; of a process that is open: it has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def has_ended(fd: int, pid: int, start: int) -> bool:
    """Has a process ended that was opened? One that could not be is gone, or this system opens none."""
    if fd >= 0:
        return readable(fd)
    return not PORTABLE or not lives(pid, start)


def boottime() -> float:
    """Seconds since boot, a suspended machine included."""
    return time.clock_gettime(_CLOCK) + _shift(0)


def wall() -> int:
    """Milliseconds of wall time, for records only."""
    return int((time.time() + _shift(1)) * 1000)


def _shift(which: int) -> float:
    """For tests: a file with seconds to add to both clocks, as if the machine had slept or its clock had jumped."""
    path = os.environ.get("CODEFLEET_TEST_CLOCK")
    return float(read_file(path).split()[which]) if path else 0.0
