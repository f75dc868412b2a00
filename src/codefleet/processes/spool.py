"""The files of a spool, seen from the engine's side. Here they are made, read and appended to; guards do the rest."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codefleet.core.errors import Failed, InvalidInput, NoSpace
from codefleet.ports import ChildState, ChildStatus, Job
from codefleet.processes.guard import kernel, records

MARK = "CODEFLEET_CHILD"
"""The variable that every descendant of a child inherits, with a value of its own."""
_STDIN = {"none": os.devnull, "queue": "queue"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A status with what is needed to act on it."""

    status: ChildStatus
    child_start: int = 0
    guard_start: int = 0
    ending: str = ""
    """Why it is being ended, once its guard has taken notice."""
    here: bool = True
    """It was written in this boot of this machine."""

    @property
    def over(self) -> bool:
        """Neither child nor guard lives, whatever was recorded last."""
        return not self.guard_lives() and not self.child_lives()

    def guard_lives(self) -> bool:
        return self.here and kernel.lives(self.status.guard, self.guard_start)

    def child_lives(self) -> bool:
        return self.here and kernel.lives(self.status.pid, self.child_start)


# ---------------------------------------------------------------------------------------------------------- making


def lay(spool: Path, job: Job) -> None:
    """Make a spool with everything that its guard will need, so that a full disk can not surprise it later."""
    packed = _packed(job)
    if read(spool).status.state is not ChildState.ABSENT:
        raise Failed(f"the spool {spool} has been used", hint="every child gets a new one")
    try:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_files(spool, packed, queue=job.stdin == "queue")
    except OSError as error:
        shutil.rmtree(spool, ignore_errors=True)
        raise _cannot_make(spool, error) from error


def _make_files(spool: Path, job: bytes, *, queue: bool) -> None:
    for name in ("out", "err", "in") if queue else ("out", "err"):
        os.close(os.open(spool / name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    for name in ("ctl", "stdin") if queue else ("ctl",):
        with contextlib.suppress(FileExistsError):
            os.mkfifo(spool / name, 0o600)
    (spool / "status").unlink(missing_ok=True)  # a guard that still came to the old one does nothing
    _write(spool / "status", bytes(records.SIZE) + job)


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)


def _packed(job: Job) -> bytes:
    single = {
        "cwd": str(job.cwd.absolute()),
        "stdin": str(job.stdin.absolute()) if isinstance(job.stdin, Path) else _STDIN[job.stdin],
        "limit": str(job.limit),
        "grace": str(job.grace),
        "max_output": str(job.max_output),
        "mark": f"{MARK}={secrets.token_hex(8)}",
    }
    pairs = [*single.items(), *(("arg", item) for item in job.argv), *(("env", "=".join(kv)) for kv in job.env.items())]
    if not job.argv or any("\0" in value for _, value in pairs) or any("=" in key for key in job.env):
        raise InvalidInput("no program, a NUL character, or a variable's name with `=` can not be given to a child")
    return records.packed_job(pairs)


def _cannot_make(spool: Path, error: OSError) -> Failed:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        system = next(path for path in (spool, *spool.parents) if path.is_mount())
        return NoSpace(f"the file system at {system} is full: {spool} can not be made", hint="make room there")
    return Failed(f"the spool {spool} can not be made: {error.strerror}", hint="see who owns that folder")


def laid(spool: Path) -> bool:
    """Has somebody asked for a child here, and nobody made sure that it will not come?"""
    return (spool / "status").exists()


def void(spool: Path) -> bool:
    """Make sure that nothing will ever run here; False if something does, or just begins to."""
    try:
        fd = os.open(spool / "status", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if read(spool).status.state is not ChildState.ABSENT:
            return False
        (spool / "status").unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


# --------------------------------------------------------------------------------------------------------- reading


def read(spool: Path) -> Reading:
    """What the spool says; nothing was ever there: absent."""
    raw = _piece(spool / "status", records.SIZE, 0)
    fields, _ = records.newest(raw)
    mark = records.marked(raw[records.MARK :])
    if not fields and not mark:
        return Reading(ChildStatus())
    return Reading(
        _status(fields, mark),
        child_start=int(fields.get("start", 0)),
        guard_start=int(fields.get("gstart", 0)),
        ending=fields.get("ended", ""),
        here=(fields.get("boot"), fields.get("pidns")) == kernel.here(),
    )


def _status(fields: dict[str, str], mark: str) -> ChildStatus:
    code = fields.get("code", "unknown")
    failed, _, why = mark.removeprefix("failed ").partition(" ") if mark.startswith("failed ") else ("", "", "")
    return ChildStatus(
        state=ChildState(fields.get("state", "running")),
        pid=int(fields.get("pid", 0)),
        guard=int(fields.get("guard", 0)),
        code=None if code == "unknown" else int(code),
        ended_by=fields.get("ended", ""),
        exec_error=why if failed else "",
        swept=int(fields.get("swept", 0)),
        left=int(fields.get("left", 0)),
        started_at=_instant(fields.get("t0")),
        ended_at=_instant(fields.get("t1")),
    )


def _instant(value: str | None) -> int | None:
    return int(value) if value else None


def output(spool: Path, offset: int, size: int) -> bytes:
    """A piece of what the child printed; empty at the end, or when the spool is gone."""
    return _piece(spool / "out", size, offset)


def _piece(file: Path, size: int, offset: int) -> bytes:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


# --------------------------------------------------------------------------------------------------------- telling


def tell(spool: Path, command: str) -> bool:
    """Give the guard a command; False when there is no guard."""
    try:
        fd = os.open(spool / "ctl", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENXIO, errno.ENOENT}:
            return False
        raise
    try:
        os.write(fd, f"{command}\n".encode())
    except (BlockingIOError, BrokenPipeError):
        return False
    finally:
        os.close(fd)
    return True


def queue(spool: Path, line: bytes) -> None:
    """Append one line to what the child will read: whole, or not at all."""
    with _queue(spool) as fd:
        before = os.fstat(fd).st_size
        left = memoryview(line.rstrip(b"\n") + b"\n")
        try:
            while left:
                left = left[os.write(fd, left) :]
        except OSError as error:
            os.ftruncate(fd, before)
            raise _cannot_make(spool / "in", error) from error


def mend(spool: Path) -> None:
    """Drop a line that somebody was killed in the middle of; nobody has read it."""
    with contextlib.suppress(FileNotFoundError), _queue(spool) as fd:
        size = at = os.fstat(fd).st_size
        while at:
            begin = max(at - (1 << 16), 0)
            newline = os.pread(fd, at - begin, begin).rfind(b"\n")
            if newline >= 0:
                begin += newline + 1
                break
            at = begin
        whole = begin if size and newline >= 0 else 0
        if whole < size:
            os.ftruncate(fd, whole)


@contextlib.contextmanager
def _queue(spool: Path) -> Iterator[int]:
    fd = os.open(spool / "in", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)
