"""Everything that can go wrong on our side, as one tree.

CodeFleetError
├── InvalidInput          what was asked for can not be understood or is out of range
│   ├── ConfigError       a key, value or file of the configuration
│   └── Ambiguous         a target that names several things
├── NotAllowed            the state of the thing forbids it
├── NotFound              no such thing
├── Untrusted             a repository's commands were not trusted on this machine
├── Failed                it was tried and did not work
│   ├── GitError          git said no
│   ├── NoSpace           a file system is full
│   └── AlreadyRunning    another engine holds what this one needs
└── StoreError
    ├── StoreUnavailable  the outcome is unknown: read again, or come back later
    ├── SchemaMismatch    a store of another version
    ├── Corrupt           a store that can not be believed
    ├── Stale             somebody committed first: decide again
    ├── Missing           an aggregate that is not there
    ├── Exists            an id that is taken by other content
    └── PositionGone      facts from before the kept history

An agent's failure is data (a run's outcome), never one of these.
"""

from __future__ import annotations

from typing import ClassVar


class CodeFleetError(Exception):
    """What happened, with a hint that says what to do about it."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInput(CodeFleetError):
    code = "invalid_input"


class ConfigError(InvalidInput):
    code = "config"


class Ambiguous(InvalidInput):
    code = "ambiguous"


class NotAllowed(CodeFleetError):
    code = "not_allowed"


class NotFound(CodeFleetError):
    code = "not_found"


class Untrusted(CodeFleetError):
    code = "untrusted"


class Failed(CodeFleetError):
    code = "failed"


class GitError(Failed):
    code = "git"


class NoSpace(Failed):
    code = "no_space"


class AlreadyRunning(Failed):
    code = "already_running"


class StoreError(CodeFleetError):
    code = "store"


class StoreUnavailable(StoreError):
    code = "store_unavailable"


class SchemaMismatch(StoreError):
    code = "schema_mismatch"


class Corrupt(StoreError):
    code = "corrupt"


class Stale(StoreError):
    code = "stale"


class Missing(StoreError):
    code = "missing"


class Exists(StoreError):
    code = "exists"


class PositionGone(StoreError):
    code = "position_gone"


#: class → (exit code of the command line, HTTP status). The nearest ancestor counts.
MEANING: dict[type[CodeFleetError], tuple[int, int]] = {
    CodeFleetError: (1, 500),
    InvalidInput: (2, 422),
    NotAllowed: (2, 409),
    NotFound: (3, 404),
    Untrusted: (2, 403),
    Failed: (1, 500),
    NoSpace: (1, 507),
    AlreadyRunning: (1, 409),
    StoreError: (4, 503),
    Stale: (1, 409),
    Missing: (3, 404),
    Exists: (2, 409),
    PositionGone: (3, 410),
}


def meaning(error: CodeFleetError) -> tuple[int, int]:
    """The exit code and HTTP status of an error."""
    return next(MEANING[kind] for kind in type(error).__mro__ if kind in MEANING)
