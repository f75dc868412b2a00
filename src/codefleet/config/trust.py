"""Which commands of a repository this machine's human has allowed: exactly those, in `trust.json` of the home."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from codefleet.config import keys
from codefleet.config.files import alone, content, replace_file
from codefleet.config.target import Project
from codefleet.config.values import toml, visible
from codefleet.core.errors import ConfigError
from codefleet.core.layout import Home

_INSTRUCTION = "INSTRUCTION.md"


class State(StrEnum):
    NOTHING = "nothing"
    """The project asks for nothing that needs trust."""
    NEW = "new"
    CHANGED = "changed"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a project wants to be trusted with: key → value as TOML writes it."""

    repository: Path
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        return {key: _digest(value) for key, value in self.values.items()}

    @property
    def digest(self) -> str:
        """Changes when any of it changes; the order of keys does not count."""
        return _digest(json.dumps(self.values, sort_keys=True))


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to be trusted, in words."""

    key: str
    words: str
    state: State


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def asked(project: Project) -> Asked:
    """What the project's files want to be trusted with."""
    values = {keys.dotted(path): _stable(entry.value) for path, entry in project.guarded.items()}
    if project.instruction:
        values[_INSTRUCTION] = project.instruction
    return Asked(repository=project.repository.path.resolve(), values=values)


def _stable(value: object) -> str:
    return toml(dict(sorted(value.items())) if isinstance(value, Mapping) else value)


def state(home: Home, what: Asked) -> State:
    """Has this machine's human trusted exactly that?"""
    known = _read(home).get(str(what.repository))
    if known is None:
        return State.NEW if what.values else State.NOTHING
    return State.TRUSTED if known["digest"] == what.digest else State.CHANGED


def show(home: Home, what: Asked) -> tuple[Item, ...]:
    """Everything that would be trusted, in words, and whether it was already. What has gone is said too."""
    known = _read(home).get(str(what.repository), {}).get("keys", {})
    now = [Item(key, _words(key, value), _compared(known.get(key), value)) for key, value in what.values.items()]
    gone = [Item(key, f"no longer asks for {key}", State.NOTHING) for key in known if key not in what.values]
    return (*now, *gone)


def _compared(known: str | None, value: str) -> State:
    if known is None:
        return State.NEW
    return State.TRUSTED if known == _digest(value) else State.CHANGED


def give(home: Home, what: Asked) -> None:
    """Trust exactly that, instead of what was trusted before."""
    with alone(home.trust):
        everything = _read(home)
        everything[str(what.repository)] = {"digest": what.digest, "keys": what.digests}
        _write(home, everything)


def revoke(home: Home, repository: Path) -> bool:
    """Trust this repository with nothing any more; False when it was not trusted."""
    with alone(home.trust):
        everything = _read(home)
        known = everything.pop(str(repository.resolve()), None)
        if known is not None:
            _write(home, everything)
    return known is not None


def _read(home: Home) -> dict[str, dict[str, Any]]:
    stored = content(home.trust)
    if stored is None:
        return {}
    try:
        repositories = json.loads(stored)["repositories"]
        return {
            str(path): {"digest": str(known["digest"]), "keys": dict(known["keys"])}
            for path, known in repositories.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{home.trust} is damaged", hint="Move it away and give trust again with `codefleet trust`."
        ) from None


def _write(home: Home, everything: Mapping[str, Any]) -> None:
    replace_file(home.trust, json.dumps({"version": 1, "repositories": everything}, indent=1) + "\n", 0o600)


def _words(key: str, value: str) -> str:
    if key == _INSTRUCTION:
        lines = "\n".join(map(visible, value.splitlines()))
        return f"every agent is told what .codefleet/INSTRUCTION.md says: {lines}"
    path = keys.path_of(key)
    template = _SAID.get((path[0], path[-1]), "{key} = {value}")
    return template.format(key=key, name=path[1] if len(path) > 2 else "", value=value)


#: What a key means to somebody who decides about it.
_SAID = {
    ("setup", "commands"): "runs in every new workspace: {value}",
    ("gates", "command"): "runs as the gate {name}: {value}",
    ("agents", "driver"): "starts the agent type {name} by the driver {value}",
    ("agents", "command"): "starts the agent type {name} as {value}",
    ("agents", "script"): "the scripted agent {name} takes its steps from {value}",
    ("agents", "permissions"): "the agent type {name} gets permissions {value}",
    ("agents", "keep"): "the agent type {name} gets these variables of yours: {value}",
    ("agents", "env"): "the agent type {name} gets the variables {value}",
    ("agents", "flags"): "the agent type {name} is started with {value}",
    ("agents", "allowed_tools"): "the agent type {name} may use without asking: {value}",
    ("agent", "claude_flags"): "Claude is started with {value}",
    ("landing", "target"): "the branch that work is for: {value}",
    ("landing", "policy"): "what happens to proven work: {value}",
}
