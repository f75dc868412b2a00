"""One TOML file, checked against the table of keys. Every finding and every value knows its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from codefleet.config import keys
from codefleet.config.lines import key_lines, line_of
from codefleet.config.values import toml
from codefleet.core.errors import ConfigError
from codefleet.core.settings import BUILT_IN


class Place(StrEnum):
    """Which of the two files it is."""

    HOME = "home"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where, and what to do about it."""

    text: str
    hint: str = ""

    def error(self) -> ConfigError:
        return ConfigError(self.text, hint=self.hint)


@dataclass(frozen=True, slots=True)
class Entry:
    """A checked value and where it comes from."""

    value: Any
    origin: str


Layer = Mapping[keys.Path, Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says."""

    name: str = ""
    entries: Layer = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def demand(self) -> Document:
        """Itself when nothing is wrong with it, else the first problem as `ConfigError`."""
        if self.problems:
            raise self.problems[0].error()
        return self


def read(content: bytes, name: str, place: Place) -> Document:
    """A file's content with all that is wrong with it. Never raises."""
    try:
        text = content.decode().replace("\r\n", "\n")
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = f"{name}:{_line_of_error(error, content)}"
        return Document(name=name, problems=(Problem(f"{line}: this is no valid TOML: {error}"),))
    reader = _Reader(name, place, key_lines(text))
    entries = dict(reader.entries(table))
    return Document(name=name, entries=entries, problems=tuple(reader.problems))


def _line_of_error(error: Exception, content: bytes) -> int:
    """The line that the parser named, else that of the byte it could not read, else the last one."""
    if match := re.search(r"at line (\d+)", str(error)):
        return int(match[1])
    end = error.start if isinstance(error, UnicodeDecodeError) else len(content.rstrip())
    return content.count(b"\n", 0, end) + 1


class _Reader:
    def __init__(self, name: str, place: Place, lines: Mapping[keys.Path, int]) -> None:
        self.name = name
        self.place = place
        self.lines = lines
        self.problems: list[Problem] = []

    def entries(self, table: Mapping[str, Any], above: keys.Path = ()) -> Iterator[tuple[keys.Path, Entry]]:
        for name, value in table.items():
            path = (*above, name)
            key = self._key(path, value)
            if key:
                yield from self._entry(key, path, value)
            elif not keys.is_section(path):
                self._unknown(path)
            elif not isinstance(value, Mapping):
                self._problem(path, f"{keys.dotted(path)}: a table is wanted, not {_shown(value)}")
            elif self._named_well(path, value):
                yield from self.entries(value, path)

    def _key(self, path: keys.Path, value: object) -> keys.Key | None:
        short = len(path) == 2 and path[0] == "gates" and not isinstance(value, Mapping)
        return keys.find((*path, "command") if short else path)

    def _entry(self, key: keys.Key, path: keys.Path, value: object) -> Iterator[tuple[keys.Path, Entry]]:
        if problem := keys.name_problem(path):
            self._problem(path, f"{keys.dotted(path)}: {problem}")
        elif key.home_only and self.place is Place.PROJECT:
            self._problem(path, f"{keys.dotted(path)} belongs into the home's {keys.HOME_FILE}")
        elif key.project_only and self.place is Place.HOME:
            self._problem(path, f"{keys.dotted(path)} belongs into a project's {keys.PROJECT_FILES[0]}")
        else:
            yield from self._checked(key, path, value)

    def _checked(self, key: keys.Key, path: keys.Path, value: object) -> Iterator[tuple[keys.Path, Entry]]:
        full = (*path, key.path[-1])[: len(key.path)] if key.path[0] in keys.NAMED else path
        try:
            yield full, Entry(key.kind.check(value), f"{self.name}:{self._line(path)}")
        except ValueError as error:
            self._problem(path, f"{keys.dotted(path)}: {error}, not {_shown(value)}")

    def _named_well(self, path: keys.Path, value: Mapping[str, Any]) -> bool:
        problem = keys.name_problem(path)
        if not problem and not value and len(path) == 2 and path[1] not in BUILT_IN:
            problem = "an empty table says nothing"
        if problem:
            self._problem(path, f"{keys.dotted(path)}: {problem}")
        return not problem

    def _unknown(self, path: keys.Path) -> None:
        near = keys.nearest(path)
        self._problem(path, f"unknown key {keys.dotted(path)}", f"Did you mean {near}?" if near else "")

    def _problem(self, path: keys.Path, text: str, hint: str = "") -> None:
        self.problems.append(Problem(f"{self.name}:{self._line(path)}: {text}", hint))

    def _line(self, path: keys.Path) -> int:
        return line_of(self.lines, path)


def _shown(value: object) -> str:
    text = toml(value)
    return text if len(text) <= 60 else text[:59] + "…"
