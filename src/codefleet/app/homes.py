"""Where this machine keeps its fleet: which folder, and making it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from codefleet.core.errors import Failed, InvalidInput, NoSpace

if TYPE_CHECKING:
    from codefleet.core.layout import Home

VARIABLES = ("CODEFLEET_HOME", "FLEET_HOME", "FLEET_BASE_DIR")


def choose(environ: Mapping[str, str], flag: str = "") -> Path:
    """The home that a flag names, else the environment, else `~/.codefleet`."""
    named = flag or next((environ[name] for name in VARIABLES if environ.get(name)), "")
    if "\0" in named:
        raise InvalidInput("the path of the home holds a NUL character")
    path = Path(named).expanduser() if named else _user(environ) / ".codefleet"
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links that a person chose


def twice(environ: Mapping[str, str]) -> str:
    """What to say when two variables name different homes; empty when they agree."""
    given = {name: environ[name] for name in VARIABLES if environ.get(name)}
    if len(set(given.values())) < 2:
        return ""
    first, *others = given
    return f"{first} counts; {' and '.join(others)} says otherwise and is not looked at"


def _user(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def exists(home: Home) -> bool:
    """Has a fleet ever been kept here?"""
    try:
        return home.database.exists()
    except PermissionError as error:
        raise Failed(f"{home.path} can not be read: {error.strerror}", hint="it belongs to somebody else") from error


def make(home: Home) -> str:
    """The home for its owner alone, with its id; what is there stays. Returns the id."""
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not home.id_file.exists():
            _write_id(home)
        return home.id_file.read_text().strip()
    except (NotADirectoryError, FileExistsError, PermissionError) as error:
        raise Failed(f"{home.path} can not be a home: {error.strerror}", hint="choose another with --home") from error
    except OSError as error:
        raise NoSpace(f"the home {home.path} can not be written: {error.strerror}", hint="make room there") from error


def _write_id(home: Home) -> None:
    """Of several that do this at once, the first wins."""
    import secrets

    draft = home.path / f".home.id.{os.getpid()}.{secrets.token_hex(4)}"
    draft.write_text(secrets.token_hex(6) + "\n")
    try:
        os.link(draft, home.id_file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
