"""Full file systems: how they show, and which one it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codefleet.core.errors import NoSpace

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: git passes the system's error on in words only, and not everywhere; LC_ALL=C keeps them these.
_WORDS = tuple(os.strerror(number) for number in FULL)
#: With less than this left, a program that could not write had no room.
_NOTHING = 64 << 10


def explains(words: str, places: Sequence[Path]) -> bool:
    """Did a program fail because there was no room: did it say so, or is there none?"""
    return any(word in words for word in _WORDS) or any(_free(_existing(place)) < _NOTHING for place in places)


def no_space(places: Sequence[Path]) -> NoSpace:
    """The error that names the fullest of the file systems that were written to."""
    mounts = {_mount(place) for place in places}
    fullest = min(mounts, key=_free)
    return NoSpace(
        f"The file system {fullest} is full ({_free(fullest) >> 20} MiB left).",
        hint="Make room there; nothing that existed was removed.",
    )


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What is written here becomes `NoSpace` when there is no room."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise no_space([place]) from error
        raise


def _existing(place: Path) -> Path:
    return next(parent for parent in (place, *place.parents) if parent.exists())


def _mount(place: Path) -> Path:
    here = _existing(place.absolute())
    while not here.is_mount():
        here = here.parent
    return here


def _free(mount: Path) -> int:
    room = os.statvfs(mount)
    return room.f_bavail * room.f_frsize if room.f_favail or not room.f_files else 0
