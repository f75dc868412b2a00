"""Adapters for coding agents.

`Installed` finds the driver of an agent type. A driver is one class with the methods of `ports.Driver`; those of others
are named `module:Class` in the configuration and are made with the agent type as their only argument.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # `typing` itself would take half the time in which the scripted agent starts
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from codefleet.core.settings import AgentType
    from codefleet.ports import Driver

#: The drivers that are shipped, each loaded when it is asked for.
BUILT_IN: Mapping[str, str] = {
    "claude": "codefleet.drivers.claude:Claude",
    "command": "codefleet.drivers.command:CommandLine",
    "scripted": "codefleet.drivers.scripted:Scripted",
}

_METHODS = ("check", "command", "parse", "encode", "farewell", "conclude")


class Installed:
    """The drivers that are shipped, and any class that the configuration names."""

    def driver(self, name: str, agent: AgentType) -> Driver:
        made: Driver = _made(name, agent)
        missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
        if missing:
            raise _refused(
                name,
                f"driver {agent.driver} has no {', '.join(missing)}",
                "It must be a class as `ports.Driver` describes it.",
            )
        return made


def _made(name: str, agent: AgentType) -> Any:
    place = BUILT_IN.get(agent.driver, agent.driver)
    module, _, attribute = place.partition(":")
    if not (module and attribute):
        hint = f"Use one of {', '.join(BUILT_IN)}, or `module:Class`."
        raise _refused(name, f"there is no driver {agent.driver!r}", hint)
    try:
        return getattr(import_module(module), attribute)(agent)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        hint = (
            f"Is the package that has {module} installed beside codefleet, and is {attribute} made with an agent type?"
        )
        raise _refused(name, f"driver {agent.driver} can not be loaded: {error}", hint) from error


def _refused(name: str, what: str, hint: str) -> Exception:
    from codefleet.core.errors import ConfigError

    return ConfigError(f"agent type {name}: {what}", hint=hint)
