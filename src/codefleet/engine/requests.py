"""How an agent speaks to the fleet: a file `<n>.json` in `.requests`, answered by `<n>.answer.json`.

No store and no socket, so it works in a sandbox and waits while no engine lives. Both sides stand here; an answer is
created once and for all, by the engine or by an asker that gives up waiting, whoever is first. The agent's side loads
nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codefleet.engine import artifacts, files

VERSION = 1
ANSWER = ".answer.json"
KINDS = frozenset({"ask"})
GAVE_UP = "gave up"
PARKED = "The question is parked. End your turn now: the task goes on with the answer, in this session where possible."

_FIRST_POLL, _SLOWEST_POLL = 0.02, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an agent asks of the fleet: data, believed only as far as its token."""

    number: int
    kind: str = ""
    token: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
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
    """Answer a request; False when it has an answer already: its asker gave up, or an engine before us was there."""
    with _opened(folder) as opened:
        if opened is None:
            return False
        return files.publish(opened, f"{request.number}{ANSWER}", _encode({"v": VERSION, **data}))


def gave_up(folder: Path, request: Request) -> bool:
    """Has the asker stopped waiting? Then only the next run can be told."""
    with _opened(folder) as opened:
        return opened is not None and bool(_answer(opened, request.number).get(GAVE_UP))


# -------------------------------------------------------------------------------------------------------- agent


def ask(environ: Mapping[str, str], text: str, options: Sequence[str], wait: float) -> tuple[int, str]:
    """Ask a person and wait; the exit code and what to print. 0: the answer; 1: parked, end your turn; 2: refused."""
    folder = _own(environ)
    if folder is None or not text.strip():
        return 2, "ask needs a question" if folder else "this is no run of the fleet: CODEFLEET_ARTIFACT_DIR is not set"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(folder) as opened:
        if opened is None:
            return 2, f"{folder} is no folder of ours"
        data = {"text": text, "options": list(options), "wait": wait}
        number = _put(
            opened, {"v": VERSION, "token": environ.get("CODEFLEET_RUN_TOKEN", ""), "kind": "ask", "data": data}
        )
        return _outcome(_wait(opened, number, wait))


def report(environ: Mapping[str, str], summary: str, status: str, next_steps: Sequence[str]) -> tuple[int, str]:
    """Write a valid result; 2 with the field that is wrong."""
    folder = environ.get("CODEFLEET_ARTIFACT_DIR", "")
    if not folder:
        return 2, "this is no run of the fleet: CODEFLEET_ARTIFACT_DIR is not set"
    wrong = artifacts.write_result(Path(folder), summary=summary, status=status, next_steps=next_steps)
    return (2, wrong) if wrong else (0, "reported; end your turn when your work is complete")


def _own(environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("CODEFLEET_ARTIFACT_DIR", "")
    return Path(folder) / ".requests" if folder else None


def _outcome(answer: Mapping[str, Any]) -> tuple[int, str]:
    if "answer" in answer:
        return 0, str(answer["answer"])
    if "refused" in answer:
        return 2, str(answer["refused"])
    return 1, PARKED


def _wait(folder: int, number: int, wait: float) -> Mapping[str, Any]:
    """The answer; when it does not come in time, the request is withdrawn, unless it came just then."""
    end, pause = time.monotonic() + wait, _FIRST_POLL
    while not (answer := _answer(folder, number)):
        left = end - time.monotonic()
        if left <= 0:
            files.publish(folder, f"{number}{ANSWER}", _encode({"v": VERSION, GAVE_UP: True}))
            continue
        time.sleep(min(pause, left))
        pause = min(pause * 1.2, _SLOWEST_POLL)
    return answer


def _put(folder: int, request: Mapping[str, Any]) -> int:
    """Place a request under the lowest number that nobody has; two askers never get the same."""
    number = max((_number(name.replace(ANSWER, ".json")) for name in os.listdir(folder)), default=0)
    while True:
        number += 1
        if files.publish(folder, f"{number}.json", _encode(request)):
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
    stem, dot, ending = name.partition(".")
    plain = dot and ending == "json" and stem.isascii() and stem.isdigit() and len(stem) <= 9 and stem[0] != "0"
    return int(stem) if plain else 0


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _document(folder: int, name: str) -> dict[str, Any] | None:
    return artifacts.parse(files.read(name, folder=folder))


def _answer(folder: int, number: int) -> dict[str, Any]:
    """The answer so far. One that can not be read is taken for withdrawn: it would never change."""
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
    if not (isinstance(token, str) and isinstance(data, dict)) or document.get("v") != VERSION or kind not in KINDS:
        return Request(number=number, refused="it has not the form of a request")
    return Request(number=number, kind=str(kind), token=token, data=data)
