"""The settings of an earlier tool, taken over into a project's file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codefleet.config import edit, keys
from codefleet.config.files import content, replace_file
from codefleet.core.errors import ConfigError, NotFound
from codefleet.core.layout import Home
from codefleet.core.settings import BUILT_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an old file says in our keys, and what of it has no place here, with the reason."""

    values: Mapping[keys.Path, object] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def bring_in(old: Path, home: Home, repository: Path) -> Imported:
    """Take an old file's settings into the project's file. The old file stays, with a copy beside it."""
    data = content(old)
    if data is None:
        raise NotFound(f"there is no {old}", hint="There is nothing to take over; plain `codefleet init` is enough.")
    imported = understood(data, str(old))
    edit.set_values_in_project(home, imported.values, repository)
    replace_file(old.with_name(f"{old.name}.backup"), data.decode(), 0o600)
    return imported


def understood(data: bytes, name: str) -> Imported:
    """An old file in our keys; flat and sectioned ones are known."""
    try:
        table = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{name}: this is no valid TOML: {error}") from None
    values: dict[keys.Path, object] = {}
    left_out: dict[str, str] = {}
    for path, value in _leaves(table):
        key = _ours(path)
        reason = _refused(key, value) if key else _WHY.get(path[-1], "there is no such key")
        if key and not reason:
            values[key.path] = value
        else:
            left_out[keys.dotted(path)] = reason
    return Imported(values=values, left_out=left_out)


_WHY = {"repo_root": "the project is where it lies", "tmux_prefix": "there are no such sessions"}


def _leaves(table: Mapping[str, Any], above: keys.Path = ()) -> Iterator[tuple[keys.Path, object]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _ours(path: keys.Path) -> keys.Key | None:
    return keys.find(path) or (keys.ALIASES.get(path[0]) if len(path) == 1 else None)


def _refused(key: keys.Key, value: object) -> str:
    """Why a value can not stand in a project's file; empty when it can."""
    if key.home_only:
        return "it belongs into the home's file"
    try:
        key.kind.check(value)
    except ValueError as error:
        return str(error)
    return f"there is no agent type {value}" if key.name == "agent.default" and value not in BUILT_IN else ""
