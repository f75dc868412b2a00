"""Asks for guards. They come from a nursery, a child of this process, which is replaced whenever it dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

import codefleet
from codefleet.processes.guard import kernel

PATIENCE = 3.0
"""Seconds in which a nursery has to answer; it needs one or two thousandths."""
_MESSAGES = socket.SOCK_STREAM if kernel.PORTABLE else socket.SOCK_SEQPACKET
"""One short message at a time is under way, so a stream keeps them apart as well."""
_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from codefleet.processes.guard import nursery
nursery.main(int(sys.argv[2]))
"""


@dataclass(frozen=True, slots=True)
class Nursery:
    """The process, and our end of its socket."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    async def ask(self, spool: Path, pidfd: int) -> int:
        """A guard's pid, 0 if there is none; raises `OSError` when nobody serves."""
        request = os.fsencode(spool)
        if pidfd >= 0 and not kernel.PORTABLE:  # a kqueue can not be passed on
            socket.send_fds(self.socket, [request], [pidfd])
        else:
            self.socket.send(request)
        with anyio.CancelScope(shield=True):  # the answer is ours to take, whoever has lost interest
            with anyio.move_on_after(PATIENCE):
                await anyio.wait_readable(self.socket)
            answer = self.socket.recv(4)
        if not answer:
            raise ConnectionResetError
        return int.from_bytes(answer, sys.byteorder)

    def end(self, *, kill: bool) -> None:
        self.socket.close()
        if kill:
            self.process.kill()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Guards:
    """One nursery at a time. A request that a dying nursery swallowed is asked again by whoever waits for it."""

    def __init__(self) -> None:
        self._nursery: Nursery | None = None
        self._lock = anyio.Lock()

    async def open(self) -> None:
        async with self._lock:
            await self._ready()

    async def close(self) -> None:
        """The end of the socket is the end of the nursery; its guards go on."""
        async with self._lock:
            await self._end(kill=False)

    async def ask(self, spool: Path, pidfd: int = -1) -> int:
        """Have a guard come to a spool: its pid, or 0 if none can. The spool will say what it did."""
        async with self._lock:
            for _ in range(3):
                try:
                    return await (await self._ready()).ask(spool, pidfd)
                except OSError:
                    await self._end(kill=True)
            return 0

    async def _ready(self) -> Nursery:
        if self._nursery is None:
            self._nursery = await to_thread.run_sync(_spawn)
        return self._nursery

    async def _end(self, *, kill: bool) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery:
            await to_thread.run_sync(partial(nursery.end, kill=kill))


def _spawn() -> Nursery:
    """Isolated from site packages and Python's environment; its code is found beside ours."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, _MESSAGES)
    ours.setblocking(False)
    place = str(Path(codefleet.__file__).parents[1])
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-S", "-I", "-c", _PROGRAM, place, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd="/",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return Nursery(process, ours)
