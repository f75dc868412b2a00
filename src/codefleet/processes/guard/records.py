"""The file `status` of a spool: what is to be run, and how it goes, which neither a crash nor a full disk can spoil.

It is locked by the guard that keeps the child. There is nothing else to find, to forget or to run out of room for.
"""

from __future__ import annotations

import os
import sys
from binascii import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SLOT = 4096
MARK = 2 * SLOT
"""Where the child itself writes: `begun` right before it becomes the program, `failed CODE WHY` if it could not."""
SIZE = 3 * SLOT
"""From here on: the job."""
VERSION = "1"


if sys.platform == "darwin":
    import fcntl

    def _sync(fd: int) -> None:
        """To the disk itself; plain `fsync` ends at its cache there."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:
    _sync = getattr(os, "fdatasync", os.fsync)


class Record:
    """The status: two slots written in turn, so one of them is always whole."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.fields, self._seq = newest(os.pread(fd, MARK, 0))

    def put(self, changes: Mapping[str, object], *, durable: bool = False) -> None:
        """Write the status with these changes; durable ones survive a loss of power."""
        self.fields.update({key: str(value) for key, value in changes.items()})
        self._seq += 1
        os.pwrite(self.fd, _packed(self._seq, self.fields), (self._seq % 2) * SLOT)
        if durable:
            _sync(self.fd)

    def number(self, key: str) -> int:
        return int(self.fields.get(key) or 0)

    def job(self) -> Job:
        return Job(os.pread(self.fd, os.fstat(self.fd).st_size, SIZE))

    def mark(self) -> str:
        """The child's own word: empty, `begun`, or `failed CODE WHY`."""
        return marked(os.pread(self.fd, SLOT, MARK))


def newest(raw: bytes) -> tuple[dict[str, str], int]:
    """The fields of the newest whole slot and its number; nothing and 0 when none was ever written."""
    slots = [_unpacked(raw[at : at + SLOT]) for at in (0, SLOT)]
    fields = max(slots, key=lambda slot: int(slot.get("seq", 0)))
    return fields, int(fields.pop("seq", 0))


def marked(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "replace").strip()


def _packed(seq: int, fields: dict[str, str]) -> bytes:
    body = " ".join([f"seq={seq}", *(f"{key}={value}" for key, value in fields.items())]).encode()
    return (b"%08x %s\n" % (crc32(body), body)).ljust(SLOT, b"\0")


def _unpacked(slot: bytes) -> dict[str, str]:
    checksum, _, rest = slot.partition(b" ")
    body, end, _ = rest.partition(b"\n")
    if not end or checksum != b"%08x" % crc32(body):
        return {}
    return dict(pair.split("=", 1) for pair in body.decode().split(" "))


class Job:
    """What is to be run, as it lies in the spool: `key=value` ended by NUL, which no argument can contain."""

    def __init__(self, raw: bytes) -> None:
        pairs = [os.fsdecode(item).partition("=") for item in raw.split(b"\0")[:-1]]
        single = {key: value for key, _, value in pairs}
        self.argv = [value for key, _, value in pairs if key == "arg"]
        self.env = dict(value.split("=", 1) for key, _, value in pairs if key == "env")
        self.cwd = single["cwd"]
        self.stdin = single["stdin"]
        self.limit = float(single["limit"])
        self.grace = float(single["grace"])
        self.max_output = int(single["max_output"])
        self.mark = single["mark"]


def packed_job(pairs: list[tuple[str, str]]) -> bytes:
    """The bytes that `Job` reads."""
    return b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in pairs)


def read_file(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
