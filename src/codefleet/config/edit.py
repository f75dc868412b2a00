"""Changing a settings file: only what was asked for changes, comments and order stay."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item

from codefleet.config import keys, merging
from codefleet.config.document import Layer, Place, read
from codefleet.config.files import alone, content, replace_file
from codefleet.config.keys import Key
from codefleet.config.target import checkout_document, label, project_file
from codefleet.config.validate import unknown_agent
from codefleet.core.errors import ConfigError
from codefleet.core.layout import Home

_PRIVATE = 0o600
_SHARED = 0o644


def assigned(assignments: Iterable[str]) -> dict[keys.Path, object]:
    """What `KEY=VALUE` texts mean. Flat names of earlier tools are accepted; what makes no sense is `ConfigError`."""
    return dict(_assigned(assignment) for assignment in assignments)


def _assigned(assignment: str) -> tuple[keys.Path, object]:
    name, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"{assignment!r} is no KEY=VALUE")
    path, key = _key(name.strip())
    value = key.kind.parse(text)
    try:
        key.kind.check(value)
    except ValueError as error:
        raise ConfigError(f"{keys.dotted(path)}: {error}, not {text!r}") from None
    return path, value


def _key(name: str) -> tuple[keys.Path, Key]:
    if alias := keys.ALIASES.get(name):
        return alias.path, alias
    try:
        path = keys.path_of(name)
    except ValueError:
        raise ConfigError(f"{name!r} is no key") from None
    full = (*path, "command") if len(path) == 2 and path[0] == "gates" else path
    key = keys.find(full)
    if key is None:
        near = keys.nearest(path)
        raise ConfigError(f"unknown key {name}", hint=f"Did you mean {near}?" if near else "")
    return full, key


def set_in_home(home: Home, assignments: Iterable[str], repository: Path | None = None) -> Path:
    """Set values in the home's file; a repository's own agent types are known as well. Returns the file."""
    others = _agent_types(repository) if repository else set()
    return change(home.settings, Place.HOME, assigned(assignments), others=others)


def set_in_project(home: Home, assignments: Iterable[str], repository: Path) -> Path:
    """Set values in a project's file; what the home says is known as well. Returns the file."""
    return set_values_in_project(home, assigned(assignments), repository)


def set_values_in_project(home: Home, values: Mapping[keys.Path, object], repository: Path) -> Path:
    """`set_in_project` with values that are known already."""
    below = read(content(home.settings) or b"", keys.HOME_FILE, Place.HOME).entries
    checkout_document(repository)
    return change(project_file(repository), Place.PROJECT, values, below=below)


def _agent_types(repository: Path) -> set[str]:
    """Those that a project's file names; a broken file names none."""
    try:
        return {path[1] for path in checkout_document(repository).entries if path[0] == "agents"}
    except ConfigError:
        return set()


def change(
    path: Path,
    place: Place,
    values: Mapping[keys.Path, object],
    *,
    below: Layer | None = None,
    others: Collection[str] = (),
) -> Path:
    """Set values in a file, made if need be. `below`: what it stands on; `others`: agent types from elsewhere. A result
    that is wrong is refused and the file stays as it was."""
    with alone(path):
        after = changed(content(path) or b"", label(path, place), place, values)
        document = read(after.encode(), label(path, place), place).demand()
        settings = merging.settings(merging.merged((below or {}, document.entries)))
        if ("agent", "default") in values and (problem := unknown_agent(settings, others)):
            raise problem.error()
        replace_file(path, after, _mode(path, place))
    return path


def changed(before: bytes, name: str, place: Place, values: Mapping[keys.Path, object]) -> str:
    """The text of a file with other values in it."""
    read(before, name, place).demand()
    text = before.decode()
    try:
        document = tomlkit.parse(text)
        for path, value in values.items():
            _put(document, path, value)
        after = document.as_string()
        unchanged = _without(tomllib.loads(text), values) == _without(tomllib.loads(after), values)
    except (TOMLKitError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{name} can not be changed by a program: {error}", hint=_BY_HAND) from None
    if not unchanged:
        raise ConfigError(f"{name} can not be changed without touching more of it", hint=_BY_HAND)
    return after


_BY_HAND = "Change it by hand with `codefleet config edit`."


def _put(table: MutableMapping[str, Any], path: keys.Path, value: object) -> None:
    """Set one value, making the tables that it stands in."""
    if len(path) == 1:
        table[path[0]] = _inline(value) if isinstance(value, Mapping) else value
        return
    inner = table.get(path[0])
    if isinstance(inner, MutableMapping):
        _put(inner, path[1:], value)
    elif inner is not None and path[1:] == ("command",):
        table[path[0]] = value
    elif inner is not None:
        table[path[0]] = _long_form(inner, path[1], value)
    else:
        table[path[0]] = _inline({}) if isinstance(table, InlineTable) else tomlkit.table()
        _put(table[path[0]], path[1:], value)


def _long_form(command: Item, name: str, value: object) -> InlineTable:
    """A gate's short form with something beside its command; its comment stays."""
    table = _inline({"command": command.unwrap(), name: value})
    table.trivia.comment_ws, table.trivia.comment = command.trivia.comment_ws, command.trivia.comment
    return table


def _inline(values: Mapping[str, object]) -> InlineTable:
    """A table on one line, so that a gate's long form keeps its place among the others."""
    table = tomlkit.inline_table()
    table.update(values)
    return table


def _without(table: Mapping[str, Any], values: Iterable[keys.Path]) -> dict[keys.Path, object]:
    """All other values of a file."""
    return {path: value for path, value in _flat(table) if path not in set(values)}


def _flat(table: Mapping[str, Any], above: keys.Path = ()) -> Iterable[tuple[keys.Path, object]]:
    for name, value in table.items():
        path = (*above, name)
        if isinstance(value, Mapping) and keys.find(path) is None:
            yield from _flat(value, path)
        else:
            yield (*path, "command") if len(path) == 2 and path[0] == "gates" else path, value


def _mode(path: Path, place: Place) -> int:
    if place is Place.HOME:
        return _PRIVATE
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return _SHARED
