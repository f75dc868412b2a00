"""One writer of a repository's list of worktrees at a time, and locks that a killed git left behind."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from codefleet.core.errors import GitError
from codefleet.workspaces import layout, space

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds to wait for the repository's lock before saying who is in the way."""
_STILL = 0.5 if Path("/proc/self").exists() else 10.0
"""Seconds that a lock file of git must stay as it is before it counts as left behind; longer where we can not see
whether a git is at work."""
_CALLS = 10
_LIVING = 15.0
"""Seconds to wait for a live git that holds a lock."""

_threads: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def repository(common: Path) -> Iterator[int]:
    """Hold the repository's lock, against our threads and against other processes. Gives the descriptor: a git that
    inherits it keeps the lock for as long as it lives, even if we are killed."""
    deadline = time.monotonic() + PATIENCE
    turn = _threads[common]
    if not turn.acquire(timeout=PATIENCE):
        raise _busy(common)
    try:
        file = _opened(common)
        try:
            _flock(file, common, deadline)
            yield file
        finally:
            os.close(file)
    finally:
        turn.release()


def _opened(common: Path) -> int:
    folder = layout.shared(common)
    with space.writing(common):
        folder.mkdir(exist_ok=True)
        return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _flock(file: int, common: Path, deadline: float) -> None:
    pause = 0.001
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _busy(common) from None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        else:
            return


def _busy(common: Path) -> GitError:
    return GitError(
        f"Another process has held {layout.shared(common) / 'lock'} for {PATIENCE:.0f} seconds.",
        hint=f"See which with `fuser {layout.shared(common) / 'lock'}`.",
    )


def unstuck(call: Callable[[], T], tree: layout.Tree, refs: Sequence[str] = ()) -> T:
    """Call; when git fails and a lock of this worktree or these refs was left behind by a dead git, take it away and
    call again. Where there is no lock one more call tells whether there was one that its holder let go meanwhile."""
    own = [tree.gitdir / "index.lock", tree.gitdir / "HEAD.lock"]
    files = {**dict.fromkeys(own, tree.path), **{tree.common / f"{ref}.lock": None for ref in refs}}
    for _ in range(_CALLS):
        try:
            return call()
        except GitError:
            stuck = [file for file in files if file.exists()]
            if stuck and not any(_lifted(file, files[file]) for file in stuck):
                raise
            if not stuck:
                break
    return call()


def _lifted(file: Path, folder: Path | None) -> bool:
    """Is a lock gone now: let go by its holder, or taken away by us because nobody holds it? A worktree's is held for
    as long as a git that works in its folder likes (an editor may be open), a ref's for a moment."""
    deadline = time.monotonic() + _LIVING
    since, last = time.monotonic(), _seen(file)
    while time.monotonic() < deadline:
        time.sleep(0.02)
        now = _seen(file)
        if now is None:
            return True
        if now != last or (folder is not None and _gits_in(folder)):
            since, last = time.monotonic(), now
        elif time.monotonic() - since > _STILL:
            file.unlink(missing_ok=True)
            return True
    return False


def _seen(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _gits_in(path: Path) -> bool:
    """Does a live git work in this folder?"""
    return any(_is_git(process) and _is_within(process / "cwd", path) for process in Path("/proc").glob("[0-9]*"))


def _is_git(process: Path) -> bool:
    try:
        return (process / "comm").read_bytes().startswith(b"git")
    except OSError:
        return False


def _is_within(link: Path, path: Path) -> bool:
    try:
        return link.readlink().is_relative_to(path)
    except OSError:
        return False
