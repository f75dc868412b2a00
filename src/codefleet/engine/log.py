"""The fleet's log: one JSON object a line in a file a day, and the same lines for people on a terminal.

Everybody logs through the standard library: `getLogger("codefleet.…").info("event", extra={"task_id": …})`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from codefleet.core.layout import Home
from codefleet.engine.scrub import Scrubber

KEPT_DAYS = 14
ROOT = "codefleet"

_APART = frozenset({"ts", "level", "logger", "event", "traceback"})
_BUILT_IN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def opened(home: Home, level: str, *, scrubber: Scrubber, terminal: TextIO | None = None) -> Iterator[DailyFile]:
    """Log to the home's file, and to a terminal if one is given, while the context lasts."""
    logger, file = logging.getLogger(ROOT), DailyFile(home.logging, scrubber)
    handlers: list[logging.Handler] = [file, *([Terminal(terminal, scrubber)] if terminal else [])]
    before = logger.level, logger.propagate
    logger.setLevel(level)
    logger.propagate = False
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield file
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.level, logger.propagate = before


def line(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says: `ts level logger event` and its fields."""
    fields = {name: value for name, value in vars(record).items() if name not in _BUILT_IN}
    if record.exc_info and record.exc_info[0]:
        fields["error"] = "".join(traceback.format_exception_only(record.exc_info[1])).strip()
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"ts": when, "level": record.levelname, "logger": record.name, "event": record.getMessage(), **fields}


class DailyFile(logging.Handler):
    """Appends to `fleet-<UTC date>.jsonl`, one write a line, shared with other engines; old files go."""

    def __init__(self, folder: Path, scrubber: Scrubber) -> None:
        super().__init__()
        self.folder = folder
        self.scrubber = scrubber
        self._date = ""
        self._descriptor = -1
        self._broken = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line; a disk that refuses it is said once on stderr and never stops the work."""
        try:
            said = json.dumps(self.scrubber.data(line(record)), default=str, ensure_ascii=False)
            self._roll(datetime.fromtimestamp(record.created, UTC))
            os.write(self._descriptor, said.encode("utf-8", "replace") + b"\n")
            self._broken = False
        except OSError as error:
            if not self._broken and sys.stderr is not None:
                sys.stderr.write(f"the log in {self.folder} can not be written: {error.strerror}\n")
            self._broken = True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._date = -1, ""
        super().close()

    def _roll(self, now: datetime) -> None:
        date = now.strftime("%Y-%m-%d")
        if date == self._date:
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fresh = os.open(self.folder / f"fleet-{date}.jsonl", flags, 0o600)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._date = fresh, date
        self._drop((now - timedelta(days=KEPT_DAYS)).strftime("%Y-%m-%d"))

    def _drop(self, before: str) -> None:
        for old in self.folder.glob("fleet-????-??-??.jsonl"):
            if old.name[6:16] < before:
                with suppress(OSError):
                    old.unlink()


class Terminal(logging.Handler):
    """The same lines for people: time, level where it matters, event, fields."""

    def __init__(self, stream: TextIO, scrubber: Scrubber) -> None:
        super().__init__()
        self.stream = stream
        self.scrubber = scrubber

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):
            self.stream.write(shown(self.scrubber.data(line(record))) + "\n")
            self.stream.flush()


def shown(said: dict[str, Any]) -> str:
    """A log line for people; control characters in it are shown, not obeyed."""
    fields = " ".join(f"{name}={_short(said[name])}" for name in said if name not in _APART)
    level = "" if said["level"] == "INFO" else f"{said['level']} "
    clock = datetime.fromisoformat(said["ts"]).astimezone().strftime("%H:%M:%S")
    return f"{clock} {level}{_plain(str(said['event']))}{'  ' + fields if fields else ''}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return _plain(f'"{text}"' if " " in text else text)


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
