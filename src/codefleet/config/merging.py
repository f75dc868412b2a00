"""Layers of values become settings: the higher layer wins key by key, and every value keeps its origin."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from codefleet.config import keys
from codefleet.config.document import Entry, Layer
from codefleet.core.errors import ConfigError
from codefleet.core.settings import BUILT_IN, AgentType, Gate, Settings

_BYPASS = "--dangerously-skip-permissions"


def merged(layers: Iterable[Layer]) -> dict[keys.Path, Entry]:
    """The layers as one, lowest first. Tables merge, everything else is replaced."""
    result: dict[keys.Path, Entry] = {}
    for layer in layers:
        for path, entry in layer.items():
            below = result.get(path)
            both = below and isinstance(entry.value, Mapping)
            result[path] = Entry({**below.value, **entry.value}, entry.origin) if both and below else entry
    return result


def settings(layer: Layer, *, partial: bool = False) -> Settings:
    """Settings of one merged layer. `partial`: keys that need trust are missing, so entries without them are dropped."""
    sections: dict[str, dict[str, Any]] = {}
    named: dict[str, dict[str, dict[str, Any]]] = {"gates": {}, "agents": {name: {} for name in BUILT_IN}}
    for path, entry in layer.items():
        if path[0] in keys.NAMED:
            named[path[0]].setdefault(path[1], {})[path[2]] = entry.value
        else:
            sections.setdefault(path[0] if len(path) > 1 else "", {})[path[-1]] = entry.value
    base = Settings()
    plain = {name: replace(getattr(base, name), **values) for name, values in sections.items() if name}
    origin = {keys.dotted(path): entry.origin for path, entry in layer.items()}
    agents = _agents(named["agents"], origin, partial=partial)
    gates = _gates(named["gates"], origin, partial=partial)
    result = replace(base, **sections.get("", {}), **plain, agents=agents, gates=gates, origin=origin)
    return _demanded(_with_claude_flags(result))


def _agents(tables: Mapping[str, dict[str, Any]], origin: Mapping[str, str], *, partial: bool) -> dict[str, AgentType]:
    agents: dict[str, AgentType] = {}
    for name, values in tables.items():
        agent = replace(BUILT_IN.get(name, AgentType(driver="")), **values)
        if agent.driver == "" or (agent.driver == "command" and not agent.command):
            if partial:
                continue
            missing = "driver" if agent.driver == "" else "command"
            raise ConfigError(f"{_place(origin, 'agents', name)}: agent type {name} has no {missing}")
        agents[name] = agent
    return agents


def _gates(tables: Mapping[str, dict[str, Any]], origin: Mapping[str, str], *, partial: bool) -> tuple[Gate, ...]:
    if without := [name for name, values in tables.items() if "command" not in values and not partial]:
        raise ConfigError(f"{_place(origin, 'gates', without[0])}: gate {without[0]} has no command")
    return tuple(Gate(name=name, **values) for name, values in tables.items() if "command" in values)


def _place(origin: Mapping[str, str], section: str, name: str) -> str:
    prefix = keys.dotted((section, name)) + "."
    return next((place for key, place in origin.items() if key.startswith(prefix)), "")


def _with_claude_flags(settings: Settings) -> Settings:
    """`agent.claude_flags` in the place where Claude's driver looks: its agent types' flags and permissions."""
    words = tuple(word for word in shlex.split(settings.agent.claude_flags) if word != _BYPASS)
    bypass = _BYPASS in shlex.split(settings.agent.claude_flags)
    agents = dict(settings.agents)
    origin = dict(settings.origin)
    for name, agent in settings.agents.items():
        if agent.driver != "claude":
            continue
        chosen = keys.dotted(("agents", name, "permissions"))
        if bypass and chosen not in origin:
            origin[chosen] = origin["agent.claude_flags"]
            agent = replace(agent, permissions="bypass")  # noqa: PLW2901 - the type goes on changed
        agents[name] = replace(agent, flags=agent.flags + words)
    return replace(settings, agents=agents, origin=origin)


def _demanded(settings: Settings) -> Settings:
    """Refuses values that do not go together."""
    if settings.heartbeat_interval >= settings.stale_after:
        place = settings.origin.get("heartbeat_interval") or settings.origin.get("stale_after", "")
        text = f"{place}: heartbeat_interval ({settings.heartbeat_interval}) must be less than stale_after"
        raise ConfigError(f"{text} ({settings.stale_after})")
    return settings
