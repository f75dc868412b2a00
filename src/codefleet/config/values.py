"""The kinds of values that a key may have: how each is checked, read from text and written as TOML."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,18})\s*([KMGT]?B)?", re.IGNORECASE)
_LARGEST = 1 << 53
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\{(agent|task|id|user|date)\}")
_NO_BRANCH = re.compile(r"[{}\s~^:?*\[\\\x00-\x1f\x7f]|\.\.|@\{|//|^[-/.]|[/.]$|/\.|\.lock(/|$)")
_OWN_FOLDER = re.compile(r"^(~|\$HOME|\$\{HOME\})(?=/|$)")


def _as_it_is(text: str) -> object:
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value."""

    name: str
    """What is wanted, in a few words."""
    check: Callable[[object], Any]
    """The value as the settings hold it, from one that TOML or a caller gave; else `ValueError` that says what is
    wanted."""
    parse: Callable[[str], object] = _as_it_is
    """A value for `check` out of a variable or a command line."""


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return visible(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        inner = ", ".join(f"{bare(name)} = {toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item) for item in value)}]"
    return str(value)


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would not show as it is."""
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"


def bare(name: str) -> str:
    """A key's name, quoted where TOML wants that."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def size_text(count: int) -> str:
    """Bytes in the largest unit that says them exactly."""
    unit = next(unit for unit in reversed(_UNITS) if count % _UNITS[unit] == 0)
    return f"{count // _UNITS[unit]}{unit}"


def expanded(path: str, person: str) -> str:
    """A path with the person's own folder put in where `folder` allows it."""
    return _OWN_FOLDER.sub(lambda _: person, path)


def _plain(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text is wanted")
    if "\0" in value:
        raise ValueError("text without a NUL character is wanted")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("a list of texts is wanted")
    return tuple(_plain(item) for item in value)


def _fitting(name: str, fits: Callable[[str], bool]) -> Kind:
    """A text for which something holds."""

    def check(value: object) -> str:
        text = _plain(value)
        if not fits(text):
            raise ValueError(f"{name} is wanted")
        return text

    return Kind(name, check)


def text() -> Kind:
    return Kind("text", _plain)


def one_of(*words: str) -> Kind:
    return _fitting(" or ".join(map(toml, words)), words.__contains__)


def folder_name() -> Kind:
    return _fitting(
        "a name of at most 100 bytes without slashes, control characters and a dot at its beginning",
        lambda text: text.isprintable() and "/" not in text and text[:1] != "." and len(text.encode()) <= 100,
    )


def path() -> Kind:
    """A path that may begin with the person's own folder."""
    return _fitting(
        "a path, where ~ or $HOME may stand at the beginning and no other variable",
        lambda text: "$" not in _OWN_FOLDER.sub("", text),
    )


def branch() -> Kind:
    """How branches are named."""
    return _fitting(
        "a name for git's branches, made of text and {agent} {task} {id} {user} {date}",
        lambda text: bool(text) and not _NO_BRANCH.search(_PLACEHOLDER.sub("x", text)),
    )


def ref() -> Kind:
    """The name of one branch, or none."""
    return _fitting("the name of a branch", lambda text: not text or not _NO_BRANCH.search(text))


def driver(*shipped: str) -> Kind:
    """A driver: one of ours or a class of somebody else's module."""
    return _fitting(
        f"{', '.join(shipped)} or module:Class",
        lambda text: text in shipped or bool(re.fullmatch(r"[A-Za-z_][\w.]*:\w+", text)),
    )


def shell_words() -> Kind:
    """Words in one text, as a shell would split them."""

    def check(value: object) -> str:
        text = _plain(value)
        try:
            shlex.split(text)
        except ValueError as error:
            raise ValueError(f"words quoted as for a shell are wanted ({error})") from None
        return text

    return Kind("words, quoted as for a shell", check)


def flag() -> Kind:
    def check(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("true or false is wanted")
        return value

    def parse(text: str) -> object:
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text

    return Kind("true or false", check, parse)


def whole(least: int = 0) -> Kind:
    """A whole number."""
    name = f"a whole number from {least}"

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
            raise ValueError(f"{name} is wanted")
        return value

    return Kind(name, check, _number)


def seconds(*, some: bool = False) -> Kind:
    """A duration; `some`: more than none."""
    name = "a number of seconds" + (" above 0" if some else "")

    def check(value: object) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not isinstance(value, int | float) or not 0 <= value < 1e9 or (some and value == 0):
            raise ValueError(f"{name} is wanted")
        return value

    return Kind(name, check, _number)


def _number(text: str) -> object:
    """The number that a text is, if it is one."""
    for read in (int, float):
        try:
            return read(text.strip()) if len(text) < 20 and "_" not in text else text
        except ValueError:
            continue
    return text


def size() -> Kind:
    """Bytes, written like `512MB`."""
    name = 'a size like "512MB"'

    def check(value: object) -> int:
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        count = int(match[1]) * _UNITS[(match[2] or "B").upper()] if match else value
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < _LARGEST:
            raise ValueError(f"{name} is wanted")
        return count

    return Kind(name, check)


def words(never: tuple[str, ...] = ()) -> Kind:
    """A list of texts; `never` are those that would open too much."""

    def check(value: object) -> tuple[str, ...]:
        texts = _texts(value)
        if wrong := [word for word in texts if word in never]:
            raise ValueError(f"{wrong[0]} alone may write anywhere; a path is wanted with it, as in {wrong[0]}(src/**)")
        return texts

    return Kind("a list of texts", check, _listed)


def inner_paths() -> Kind:
    """Paths or globs that stay within the project."""

    def check(value: object) -> tuple[str, ...]:
        texts = _texts(value)
        if out := [text for text in texts if not text or text[0] in "/~" or ".." in text.split("/")]:
            raise ValueError(f"paths inside the project are wanted, and {out[0]!r} is none")
        return texts

    return Kind("a list of paths or globs inside the project", check, _listed)


def _listed(text: str) -> object:
    """A list, written as TOML or with commas."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def variables() -> Kind:
    """A table of texts, for an environment."""

    def check(value: object) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise ValueError("a table of texts is wanted")
        if wrong := [name for name in value if not _VARIABLE.fullmatch(str(name))]:
            raise ValueError(f"{wrong[0]!r} is no name of a variable; names of variables are wanted")
        return {str(name): _plain(item) for name, item in value.items()}

    return Kind("a table of texts", check, _table)


def _table(text: str) -> object:
    """A table, written as TOML or as NAME=VALUE with commas."""
    if text.lstrip().startswith("{"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    pairs = [word.strip().partition("=") for word in text.split(",") if word.strip()]
    return {name.strip(): value for name, equals, value in pairs} if all(pair[1] for pair in pairs) else text


def command() -> Kind:
    """A command: a text for `sh -c`, or a list that is run as it stands."""
    name = "a command as text, or as a list of texts"

    def check(value: object) -> str | tuple[str, ...]:
        if not isinstance(value, str | list | tuple):
            raise ValueError(f"{name} is wanted")
        line = _plain(value) if isinstance(value, str) else _texts(value)
        if not line or not (line if isinstance(line, str) else line[0]).strip():
            raise ValueError("a command that is not empty is wanted")
        return line

    def parse(text: str) -> object:
        return _listed(text) if text.lstrip().startswith("[") else text

    return Kind(name, check, parse)
