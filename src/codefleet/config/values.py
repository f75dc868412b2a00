"""The kinds of values that a key may have: how each is checked, read from text and written as TOML."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([KMGT]?B)?", re.IGNORECASE)
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class Kind(Protocol):
    """A kind of value. What does not fit is a `ValueError` that says what is wanted."""

    @property
    def name(self) -> str:
        """What is wanted, in a few words."""
        ...

    def check(self, value: object) -> Any:
        """The value as the settings hold it, from one that TOML or a caller gave."""
        ...

    def parse(self, text: str) -> object:
        """A value for `check` out of a variable or a command line."""
        ...


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{bare(name)} = {toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item) for item in value)}]"
    return str(value)


def bare(name: str) -> str:
    """A key's name, quoted where TOML wants that."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text is wanted")
    if "\0" in value:
        raise ValueError("text without a NUL character is wanted")
    return value


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or one of a few words."""

    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " or ".join(toml(choice) for choice in self.choices) or "text"

    def check(self, value: object) -> str:
        text = _text(value)
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name} is wanted")
        return text

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True, slots=True)
class Name:
    """A text that can be the name of a folder."""

    @property
    def name(self) -> str:
        return "a name without slashes and control characters"

    def check(self, value: object) -> str:
        text = _text(value)
        if not text.isprintable() or "/" in text or text.startswith(".") or len(text.encode()) > 100:
            raise ValueError(f"{self.name} is wanted")
        return text

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True, slots=True)
class Folder:
    """A path that may begin with the person's own folder."""

    @property
    def name(self) -> str:
        return "a path; ~ and $HOME may stand at its beginning, no other variables"

    def check(self, value: object) -> str:
        text = _text(value)
        if "$" in re.sub(r"^\$(HOME|\{HOME\})(?=/|$)", "", text):
            raise ValueError(f"{self.name} is wanted")
        return text

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True, slots=True)
class Branch:
    """How branches are named."""

    @property
    def name(self) -> str:
        return "a branch made of text and {agent} {task} {id} {user} {date}"

    def check(self, value: object) -> str:
        text = _text(value)
        rest = re.sub(r"\{(agent|task|id|user|date)\}", "x", text)
        if not rest or re.search(r"[{}\s~^:?*\[\\\x00-\x1f\x7f]|\.\.|@\x7b|//|^[-/]|/$", rest):
            raise ValueError(f"{self.name} is wanted")
        return text

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True, slots=True)
class ShellWords:
    """Words in one text, as a shell would split them."""

    @property
    def name(self) -> str:
        return "words, quoted as for a shell"

    def check(self, value: object) -> str:
        text = _text(value)
        try:
            shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{self.name} are wanted ({error})") from None
        return text

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True, slots=True)
class DriverName:
    """A driver: one of ours or a class of somebody else's module."""

    shipped: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{', '.join(self.shipped)} or module:Class"

    def check(self, value: object) -> str:
        text = _text(value)
        if text not in self.shipped and not re.fullmatch(r"[\w.]+:\w+", text):
            raise ValueError(f"{self.name} is wanted")
        return text

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True, slots=True)
class Flag:
    @property
    def name(self) -> str:
        return "true or false"

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{self.name} is wanted")
        return value

    def parse(self, text: str) -> object:
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    least: int = 0

    @property
    def name(self) -> str:
        return f"a whole number from {self.least}"

    def check(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value < 1 << 53:
            raise ValueError(f"{self.name} is wanted")
        return value

    def parse(self, text: str) -> object:
        return int(text) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text) else text


@dataclass(frozen=True, slots=True)
class Seconds:
    """A duration."""

    more_than: float = -1.0

    @property
    def name(self) -> str:
        return "a number of seconds" + (" above 0" if self.more_than == 0 else "")

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.name} is wanted")
        if not max(self.more_than, -1e-9) < value < 1e9:
            raise ValueError(f"{self.name} is wanted")
        return value

    def parse(self, text: str) -> object:
        try:
            return int(text) if text.strip().isdigit() else float(text)
        except ValueError:
            return text


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, written like `512MB`."""

    @property
    def name(self) -> str:
        return 'a size like "512MB"'

    def check(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{self.name} is wanted")
        return int(match[1]) * _UNITS[(match[2] or "").upper().removesuffix("B") + ("B" if match[2] else "")]

    def parse(self, text: str) -> object:
        return text


def size(count: int) -> str:
    """Bytes in the largest unit that says them exactly."""
    unit = next(unit for unit in reversed(_UNITS) if count % _UNITS[unit] == 0)
    return f"{count // _UNITS[unit]}{unit}"


@dataclass(frozen=True, slots=True)
class Words:
    """A list of texts; `never` are those that would open too much, `inside`: paths that stay within the project."""

    never: tuple[str, ...] = ()
    inside: bool = False

    @property
    def name(self) -> str:
        return "a list of texts"

    def check(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{self.name} is wanted")
        words = tuple(_text(item) for item in value)
        if wrong := [word for word in words if word in self.never]:
            raise ValueError(f"{wrong[0]} alone may write anywhere; name the paths, as in {wrong[0]}(src/**)")
        if self.inside and (out := [word for word in words if word.startswith(("/", "~")) or ".." in word.split("/")]):
            raise ValueError(f"{out[0]!r} leaves the project; a path inside it is wanted")
        return words

    def parse(self, text: str) -> object:
        return _words(text)


def _words(text: str) -> object:
    if text.lstrip().startswith("["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return [word.strip() for word in text.split(",") if word.strip()]


@dataclass(frozen=True, slots=True)
class Variables:
    """A table of texts, for an environment."""

    @property
    def name(self) -> str:
        return "a table of texts"

    def check(self, value: object) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{self.name} is wanted")
        if wrong := [name for name in value if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name))]:
            raise ValueError(f"{wrong[0]!r} is no name of a variable")
        return {str(name): _text(item) for name, item in value.items()}

    def parse(self, text: str) -> object:
        pairs = [word.strip().partition("=") for word in text.split(",") if word.strip()]
        return {name.strip(): value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Line:
    """A command: a text for `sh -c`, or a list that is run as it stands."""

    @property
    def name(self) -> str:
        return "a command as text, or as a list of texts"

    def check(self, value: object) -> str | tuple[str, ...]:
        command = Words().check(value) if isinstance(value, list | tuple) else _text(value)
        if not command or (isinstance(command, str) and not command.strip()):
            raise ValueError("a command that is not empty is wanted")
        return command

    def parse(self, text: str) -> object:
        return _words(text) if text.lstrip().startswith("[") else text
