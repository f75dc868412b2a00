"""Verdicts that all drivers share: what the end of a child says where its own protocol said nothing."""

from __future__ import annotations

from codefleet.core.progress import Progress
from codefleet.ports import ChildStatus, Ending, EndingKind

OK = Ending(kind=EndingKind.OK)

#: What an error of `turn_ended` means for whoever must answer for it.
BLAME = {
    "auth": EndingKind.ACCOUNT_ERROR,
    "quota": EndingKind.ACCOUNT_ERROR,
    "overflow": EndingKind.CONTEXT,
    "api": EndingKind.DRIVER_ERROR,
    "driver": EndingKind.DRIVER_ERROR,
}

_REASON_LIMIT = 500


def of_turn(progress: Progress) -> Ending | None:
    """The verdict of the agent's own protocol; None when a message is still unanswered or nothing was said."""
    turn = progress.last_turn
    if not turn or progress.pending_turn:
        return None
    if turn.get("ok") is True:
        return OK
    return of_error(str(turn.get("error")), str(turn.get("text") or ""))


def of_error(error: str, text: str) -> Ending:
    """The verdict on a turn that ended with an error of the protocol."""
    kind = BLAME.get(error, EndingKind.OWN_ERROR)
    return Ending(kind=kind, reason=_short(text) or f"it failed: {error or 'unknown'}")


def of_exit(status: ChildStatus, stderr: str) -> Ending:
    """The verdict on an exit that no word of a protocol explains. Exit 0 is a success here."""
    if status.exec_error:
        return Ending(kind=EndingKind.DRIVER_ERROR, reason=f"it could not be started: {status.exec_error}")
    if status.ended_by:
        return Ending(kind=EndingKind.OWN_ERROR, reason=f"it was ended by us ({status.ended_by})")
    if status.code == 0:
        return OK
    return Ending(kind=EndingKind.OWN_ERROR, reason=_with_words(how(status), stderr))


def at_start(status: ChildStatus, stderr: str) -> Ending:
    """The verdict on an agent that ended before it came up: it can not run here, whatever its task was."""
    return Ending(kind=EndingKind.DRIVER_ERROR, reason=_with_words(f"it did not start: {how(status)}", stderr))


def how(status: ChildStatus) -> str:
    """How a child ended, in words."""
    if status.code is None:
        return "its exit code is unknown"
    return f"it was ended by signal {-status.code}" if status.code < 0 else f"it exited with {status.code}"


def _with_words(what: str, stderr: str) -> str:
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "")
    return _short(f"{what}: {last.strip()}" if last else what)


def _short(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _REASON_LIMIT else line[: _REASON_LIMIT - 1] + "…"
