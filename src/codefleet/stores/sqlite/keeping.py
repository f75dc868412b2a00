"""The daily backup, made on a thread of a process that lives long enough: an engine."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

import apsw

from codefleet.core.errors import CodeFleetError, Corrupt
from codefleet.core.model import Instant
from codefleet.stores.sqlite import backups
from codefleet.stores.sqlite.opening import Place

_LOG = logging.getLogger(__name__)

#: Milliseconds between two looks whether a backup is due.
LOOK = 60_000


class Keeper:
    """Looks at each beat whether today's backup is missing, and makes it beside everything else."""

    def __init__(self, place: Place, damaged: Callable[[Corrupt], None]) -> None:
        self._place = place
        self._damaged = damaged
        self._next: Instant = 0
        self._thread: threading.Thread | None = None
        self._db: apsw.Connection | None = None

    def look(self, now: Instant) -> None:
        """Begin the backup if it is due."""
        if now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + LOOK
        if backups.is_due(self._place.backups, now):
            self._thread = threading.Thread(target=self._run, args=(now,), name="codefleet-backup", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until a backup that was begun is over. Blocks."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Give up a backup that was begun. Blocks."""
        if self._db is not None:
            with suppress(apsw.ConnectionClosedError):
                self._db.interrupt()
        self.wait()

    def _run(self, now: Instant) -> None:
        try:
            with self._place.errors:
                self._back_up(now)
        except Corrupt as error:
            _LOG.error("the daily backup found damage: %s", error)
            self._damaged(error)
        except (CodeFleetError, OSError) as error:
            _LOG.warning("the daily backup was not made: %s", error)

    def _back_up(self, now: Instant) -> None:
        folder = self._place.backups
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._db = self._place.connect()
            if backups.is_due(folder, now):
                backups.daily(self._db, folder, now)
        except BlockingIOError:
            _LOG.debug("another process makes the daily backup")
        finally:
            os.close(lock)
            if self._db is not None:
                self._db.close()
