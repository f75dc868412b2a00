"""Talking with a short-lived child through pipes, until it has ended or its time is up.

`Popen.communicate` with a timeout sleeps between its looks at a child that has closed its pipes and is about to end: a
millisecond or two for each call of git, which is as long as most of them take.
"""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import time
from typing import IO

_CHUNK = 1 << 16


def talk(child: subprocess.Popen[bytes], said: bytes, seconds: float) -> tuple[bytes, bytes] | None:
    """Give it its input and take what it says; None when it has not ended in time."""
    deadline = time.monotonic() + seconds
    out, err = bytearray(), bytearray()
    heard = {pipe: into for pipe, into in ((child.stdout, out), (child.stderr, err)) if pipe is not None}
    if not _pumped(child.stdin, memoryview(said), heard, deadline) or not _ended(child, deadline):
        return None
    return bytes(out), bytes(err)


def _pumped(stdin: IO[bytes] | None, rest: memoryview, heard: dict[IO[bytes], bytearray], deadline: float) -> bool:
    """Was everything said and heard before the deadline?"""
    with selectors.PollSelector() as pipes:
        for pipe in heard:
            pipes.register(pipe, selectors.EVENT_READ, pipe)
        if stdin is not None:
            pipes.register(stdin, selectors.EVENT_WRITE, stdin)
        while pipes.get_map():
            ready = pipes.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                return False
            for key, _ in ready:
                if key.data is stdin:
                    rest = _given(key.fd, rest)
                if not (rest if key.data is stdin else _taken(key.fd, heard[key.data])):
                    pipes.unregister(key.data)
                    key.data.close()
    return True


def _given(pipe: int, rest: memoryview) -> memoryview:
    """What is left to be said; nothing when nobody listens any more."""
    try:
        return rest[os.write(pipe, rest[: select.PIPE_BUF]) :]
    except BrokenPipeError:
        return rest[:0]


def _taken(pipe: int, into: bytearray) -> bool:
    """Was there something more?"""
    data = os.read(pipe, _CHUNK)
    into += data
    return bool(data)


def _ended(child: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait for its end without looking again and again, where the system can do that."""
    left = max(0.0, deadline - time.monotonic())
    try:
        handle = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        return _waited(child, left)
    try:
        waiter = select.poll()
        waiter.register(handle, select.POLLIN)
        waiter.poll(left * 1000)
    finally:
        os.close(handle)
    return _waited(child, 0)


def _waited(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
