"""Settings out of environment variables and the command line's flags."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from codefleet.config import keys
from codefleet.config.document import Entry, Layer
from codefleet.core.errors import ConfigError

Names = Mapping[str, Collection[str]]


def variables(environ: Mapping[str, str], names: Names) -> tuple[Layer, tuple[str, ...]]:
    """What the environment sets, with warnings; `names` are the entries of `agents` and `gates` that are known."""
    layer: dict[keys.Path, Entry] = {}
    warnings: list[str] = []
    for key, path in _paths(names):
        entry = _first(key, key.native(path), environ)
        seed = _first(key, key.foreign(path), environ)
        if entry and seed and entry.value != seed.value:
            warnings.append(f"{entry.origin} and {seed.origin} disagree; {entry.origin} wins")
        if entry or seed:
            layer[path] = entry or seed or Entry(None, "")
    return layer, tuple(warnings)


def _paths(names: Names) -> Iterator[tuple[keys.Key, keys.Path]]:
    for key in keys.KEYS:
        if key.path[0] in keys.NAMED:
            yield from ((key, (key.path[0], name, key.path[2])) for name in names.get(key.path[0], ()))
        else:
            yield key, key.path


def _first(key: keys.Key, candidates: tuple[str, ...], environ: Mapping[str, str]) -> Entry | None:
    name = next((name for name in candidates if environ.get(name)), "")
    return parsed(key, environ[name], name) if name else None


def parsed(key: keys.Key, text: str, origin: str) -> Entry:
    """A value given as text; `ConfigError` names its origin."""
    try:
        return Entry(key.kind.check(key.kind.parse(text)), origin)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}, not {text!r}") from None


def given(flags: Mapping[str, str]) -> Layer:
    """What flags set: key → text."""
    layer: dict[keys.Path, Entry] = {}
    for name, text in flags.items():
        path = tuple(name.split("."))
        key = keys.find(path)
        if key is None:
            raise ConfigError(f"unknown key {name}")
        layer[path] = parsed(key, text, key.flag or f"--{path[-1].replace('_', '-')}")
    return layer
