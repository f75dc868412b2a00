"""Small files in folders that an agent may write too: read with suspicion, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST = 1 << 20
"""Bytes of a file that we read at all."""


def read(path: Path | str, *, most: int = MOST, folder: int | None = None) -> bytes | None:
    """The content of a regular file of at most `most` bytes; a link, a pipe, a device or a bigger one is None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (OSError, ValueError):
        return None
    try:
        about = os.fstat(descriptor)
        usable = stat.S_ISREG(about.st_mode) and about.st_size <= most
        data = _all(descriptor, most + 1) if usable else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if data is not None and len(data) <= most else None


def _all(descriptor: int, most: int) -> bytes:
    data = b""
    while len(data) < most and (more := os.read(descriptor, most - len(data))):
        data += more
    return data


def write(path: Path, data: bytes) -> None:
    """Replace a file by one with this content; whoever reads sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def refresh(path: Path, data: bytes) -> None:
    """`write`, unless the file says so already."""
    if read(path, most=max(MOST, len(data))) != data:
        write(path, data)


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file in one write; never through a link, never into a pipe."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.write(descriptor, data)
    finally:
        os.close(descriptor)


@contextmanager
def drafted(folder: int, data: bytes) -> Iterator[tuple[str, int]]:
    """A file under a name that nobody looks for, to be linked to its own; its name, and its descriptor while open."""
    name = f".{secrets.token_hex(8)}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, data)
        yield name, descriptor
    finally:
        os.unlink(name, dir_fd=folder)
        os.close(descriptor)


def publish(folder: int, draft: str, name: str) -> bool:
    """Give a draft its name, which must be free, whole from its first moment; False when somebody was first."""
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    return True
