"""What holds and where it comes from, as rows for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from codefleet.config import keys
from codefleet.config.values import size_text, toml
from codefleet.core.settings import Settings

_MASK = "***"
_SIZES = frozenset({"min_free_disk", "max_output"})


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    value: Any
    """Values of variables are masked, sizes stand in their unit."""
    origin: str

    @property
    def text(self) -> str:
        """The value as TOML writes it."""
        return toml(self.value)


def rows(settings: Settings) -> tuple[Row, ...]:
    """Every key that holds, in the order of the table of keys."""
    return tuple(_rows(settings))


def _rows(settings: Settings) -> Iterator[Row]:
    gates = {gate.name: gate for gate in settings.gates}
    for key in keys.KEYS:
        if key.path[0] not in keys.NAMED:
            yield _row(settings, key.path, reduce(getattr, key.path, settings))
    for section, entries in (("agents", settings.agents), ("gates", gates)):
        for name, entry in entries.items():
            for key in keys.KEYS:
                if key.path[0] == section:
                    yield _row(settings, (section, name, key.path[2]), getattr(entry, key.path[2]))


def _row(settings: Settings, path: keys.Path, value: Any) -> Row:
    name = keys.dotted(path)
    return Row(name, _shown(path[-1], value), settings.origin.get(name, "default"))


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict.fromkeys(value, _MASK)
    if isinstance(value, tuple):
        return list(value)
    return size_text(value) if name in _SIZES else value
