"""Writing small files so that a reader sees the old one or the new one, never a half."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codefleet.core.errors import Failed, NoSpace


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
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
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
