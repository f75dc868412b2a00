"""Small files: read with a bound, written so that a reader sees the old one or the new one, never a half."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codefleet.core.errors import ConfigError, Failed, NoSpace

LARGEST = 1 << 20


def content(path: Path, *, link: bool = True) -> bytes | None:
    """A file's content, None when it is not there. What is no plain file of a sane size is refused, and where others
    may write, so is a link."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if link else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP and not link else error.strerror
        raise ConfigError(f"{path} can not be read: {reason}") from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise ConfigError(f"{path} can not be read: it is no file, or larger than {LARGEST} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str, mode: int) -> None:
    """Put the text there durably with this mode; a link keeps pointing to what it points to."""
    real = path.resolve()
    try:
        real.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(real, text.encode(), mode)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoSpace(f"no space left to write {path}", hint="Free some space and try again.") from None
        raise Failed(f"{path} can not be written: {error.strerror}") from None


def _replace(path: Path, content: bytes, mode: int) -> None:
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Only one process at a time changes the file at this path."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
