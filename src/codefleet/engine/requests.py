"""How an agent speaks to the fleet: a file `<n>.json` in `.requests`, answered by `<n>.answer.json`.

No store and no socket, so it works in a sandbox and waits while no engine lives. Both sides stand here. An answer is
created once and for all, by the engine or by an asker that gives up, whoever is first; and an asker holds a lock on
its request for as long as it waits, so that one that was killed is known to be gone.
The agent's side loads nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from codefleet.engine import artifacts, files

VERSION = 1
KINDS = ("ask",)
ANSWER = ".answer.json"
GAVE_UP = "gave_up"
PARKED = "The question is parked. End your turn now: the task goes on with the answer, in this session where possible."
OUTSIDE = "this is no run of the fleet: CODEFLEET_ARTIFACT_DIR is not set"

MOST_TEXT, MOST_OPTION, MOST_OPTIONS = 16 << 10, 1 << 10, 20
LONGEST = 7 * 24 * 3600
"""Seconds that anybody may say to wait."""
_FIRST_POLL, _SLOWEST_POLL = 0.02, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an agent asks of the fleet: data, believed only as far as its token."""

    number: int
    kind: str = ""
    token: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    """`ask`: text, options, and for how many seconds its asker waits."""
    refused: str = ""
    """Why it can not be understood; it matches no token."""


# ------------------------------------------------------------------------------------------------------- engine


def new_token() -> tuple[str, str]:
    """A token for one run's agent, and the digest that the run keeps of it."""
    token = secrets.token_hex(16)
    return token, digest(token)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def matches(request: Request, wanted: str) -> bool:
    """Does it come from the agent whose token has this digest?"""
    return bool(wanted) and not request.refused and hmac.compare_digest(digest(request.token), wanted)


def pending(folder: Path) -> list[Request]:
    """Requests that have no answer yet, in their order. What can not be understood is among them, marked `refused`."""
    try:
        names = set(os.listdir(folder))  # noqa: PTH208  names are enough, and this is asked often
    except OSError:
        return []
    numbers = sorted(number for name in names if (number := _number(name)) and f"{number}{ANSWER}" not in names)
    if not numbers:
        return []
    with _opened(folder) as opened:
        return [] if opened is None else [_read(opened, number) for number in numbers]


def reply(folder: Path, request: Request, data: Mapping[str, Any]) -> bool:
    """Answer a request with `{"answer": TEXT}`, `{"parked": true}` or `{"refused": WHY}`; False when it has been
    answered already or its asker gave up: then only the next run can be told."""
    with _opened(folder) as opened:
        return opened is not None and _settle(opened, request.number, data)


def gave_up(folder: Path, request: Request) -> bool:
    """Does nobody wait for the answer any more: the asker withdrew, or its process is gone?"""
    with _opened(folder) as opened:
        return opened is None or bool(_answer(opened, request.number).get(GAVE_UP)) or not _held(opened, request.number)


# -------------------------------------------------------------------------------------------------------- agent


def ask(environ: Mapping[str, str], text: str, options: Sequence[str], wait: float) -> tuple[int, str]:
    """Ask a person and wait; the exit code and what to print. 0: the answer; 1: parked, end your turn; 2: refused."""
    home = environ.get("CODEFLEET_ARTIFACT_DIR", "")
    if not home or not text.strip():
        return 2, "ask needs a question" if home else OUTSIDE
    data = {"text": text, "options": list(options), "wait": wait}
    said = {"v": VERSION, "token": environ.get("CODEFLEET_RUN_TOKEN", ""), "kind": "ask", "data": data}
    try:
        return _outcome(_place_and_wait(Path(home) / artifacts.REQUESTS, _encode(said), wait))
    except OSError as error:
        return 2, f"the question can not be asked: {error}"


def report(environ: Mapping[str, str], summary: str, status: str, next_steps: Sequence[str]) -> tuple[int, str]:
    """Write a valid result; 2 with the field that is wrong."""
    folder = environ.get("CODEFLEET_ARTIFACT_DIR", "")
    if not folder:
        return 2, OUTSIDE
    try:
        wrong = artifacts.write_result(Path(folder), summary=summary, status=status, next_steps=next_steps)
    except OSError as error:
        wrong = f"the result can not be written: {error}"
    return (2, wrong) if wrong else (0, "Reported. End your turn when your work is complete.")


def _place_and_wait(folder: Path, said: bytes, wait: float) -> Mapping[str, Any]:
    """Place a request, hold its lock and wait for its answer."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(folder) as opened:
        if opened is None:
            return {"refused": f"{folder} is a link; the fleet does not look there"}
        with files.drafted(opened, said) as (draft, descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return _wait(opened, _put(opened, draft), wait)


def _outcome(answer: Mapping[str, Any]) -> tuple[int, str]:
    if "answer" in answer:
        return 0, str(answer["answer"])
    if "refused" in answer:
        return 2, str(answer["refused"])
    return 1, PARKED


def _wait(folder: int, number: int, wait: float) -> Mapping[str, Any]:
    """The answer. When it does not come in time, or a signal ends us, we withdraw, unless it came just then."""
    end, pause = time.monotonic() + wait, _FIRST_POLL
    with _signals() as ended:
        while not (answer := _answer(folder, number)):
            left = end - time.monotonic()
            if left <= 0 or ended.is_set():
                _settle(folder, number, {GAVE_UP: True})
                continue
            ended.wait(min(pause, left))
            pause = min(pause * 1.2, _SLOWEST_POLL)
    return answer


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Set when somebody wants us to end."""
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    ours = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = [signal.signal(one, end) for one in ours]
    try:
        yield ended
    finally:
        for one, handler in zip(ours, before, strict=True):
            signal.signal(one, handler)


def _put(folder: int, draft: str) -> int:
    """Place a request under the lowest number above all that were used; two askers never get the same."""
    number = max((_number(name.replace(ANSWER, ".json")) for name in os.listdir(folder)), default=0)
    while True:
        number += 1
        if files.publish(folder, draft, f"{number}.json"):
            return number


# --------------------------------------------------------------------------------------------------------- both


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """The folder itself, never what a link in its place points to; None when it is not there."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _number(name: str) -> int:
    """The number of a request's file; 0 for any other file."""
    stem, _, ending = name.partition(".")
    usable = ending == "json" and stem.isascii() and stem.isdigit() and len(stem) <= 9 and stem[0] != "0"
    return int(stem) if usable else 0


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _settle(folder: int, number: int, data: Mapping[str, Any]) -> bool:
    """The one answer that a request gets; False when it has one."""
    with files.drafted(folder, _encode({"v": VERSION, **data})) as (draft, _):
        return files.publish(folder, draft, f"{number}{ANSWER}")


def _held(folder: int, number: int) -> bool:
    """Is the asker's lock on its request still there?"""
    try:
        descriptor = os.open(
            f"{number}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _document(folder: int, name: str) -> dict[str, Any] | None:
    return artifacts.parse(files.read(name, folder=folder))


def _answer(folder: int, number: int) -> dict[str, Any]:
    """The answer so far. One that can not be read is as good as withdrawn: it will never change."""
    name = f"{number}{ANSWER}"
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return _document(folder, name) or {GAVE_UP: True}
    return {}


def _read(folder: int, number: int) -> Request:
    document = _document(folder, f"{number}.json")
    if document is None:
        return Request(number=number, refused="it is not a JSON object in a plain file of at most 1 MiB")
    token, kind, data = (document.get(key) for key in ("token", "kind", "data"))
    asked = _asked(data) if isinstance(data, dict) else None
    if asked is None or not isinstance(token, str) or document.get("v") != VERSION or kind not in KINDS:
        return Request(number=number, refused="it has not the form of a request")
    return Request(number=number, kind=str(kind), token=token, data=asked)


def _asked(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The data of `ask` if it has the right form, its texts made harmless."""
    text, options, wait = data.get("text"), data.get("options", []), data.get("wait", 0)
    if not isinstance(text, str) or not isinstance(options, list) or type(wait) not in {int, float}:
        return None
    plain, choices = artifacts.cut(text, MOST_TEXT).strip(), [artifacts.cut(str(one), MOST_OPTION) for one in options]
    return {"text": plain, "options": choices[:MOST_OPTIONS], "wait": wait} if plain and 0 <= wait <= LONGEST else None
