"""The files that `init` writes."""

from __future__ import annotations

from collections.abc import Mapping

from codefleet.config.detect import Detected
from codefleet.config.keys import KEYS, Key
from codefleet.config.values import bare, size_text, toml

#: Tables shown for agent types, with what they have apart from the defaults.
_AGENTS: Mapping[str, Mapping[str, object]] = {
    "claude": {},
    "my-agent": {
        "driver": "command",
        "command": ["my-agent", "--task", "{task_id}", "--prompt-file", "{prompt_file}"],
        "stdin": "none",
    },
}
_ONLY_COMMAND = frozenset({"command", "stdin"})
_ONLY_SCRIPTED = frozenset({"script"})


def runtime_toml() -> str:
    """All keys of the home with their defaults, commented out."""
    head = (
        "# How this machine runs the fleet. Every key stands here with its default; remove the `# ` to change one.\n"
        "# `codefleet config show --show-origin` says what holds and why, `codefleet config validate` what is wrong.\n"
    )
    plain = "".join(_commented(key) for key in KEYS if len(key.path) == 1)
    return "\n".join((head, plain, _section("agent"), *map(_agent, _AGENTS), _section("limits")))


def _section(name: str) -> str:
    return f"# [{name}]\n" + "".join(_commented(key) for key in KEYS if key.path[0] == name)


def _agent(name: str) -> str:
    """One agent type's table: Claude's with all that it knows, the other with what makes it one."""
    shown = [key for key in KEYS if key.path[0] == "agents" and _belongs(key, name)]
    return f"# [agents.{name}]\n" + "".join(_commented(key, name) for key in shown)


def _belongs(key: Key, agent: str) -> bool:
    return key.path[2] in _AGENTS[agent] if _AGENTS[agent] else key.path[2] not in _ONLY_COMMAND | _ONLY_SCRIPTED


def _commented(key: Key, agent: str = "") -> str:
    example = _AGENTS.get(agent, {}).get(key.path[-1])
    value = default_text(key, agent) if example is None else toml(example)
    return f"# {bare(key.path[-1])} = {value}  # {key.meaning}\n"


def default_text(key: Key, entry: str = "") -> str:
    """The default as TOML writes it, sizes in their unit."""
    default = key.default(entry)
    return toml(size_text(default)) if key.path[-1] in {"min_free_disk", "max_output"} else toml(default)


def codefleet_toml(name: str, target: str, detected: Detected) -> str:
    """The project's file for what was detected."""
    parts = (_project(name), _setup(detected), _gates(detected.gates), _landing(target))
    return "\n".join(part for part in parts if part)


def _project(name: str) -> str:
    return f"[project]\nname = {toml(name)}\n"


def _setup(detected: Detected) -> str:
    hint = f"  # also possible: {', '.join(detected.possible_files)}" if detected.possible_files else ""
    return (
        "# What every new workspace gets: files that are copied and never committed, and commands that are run.\n"
        f"[setup]\ncredential_files = {toml(detected.credential_files)}{hint}\ncommands = {toml(detected.setup)}\n"
    )


def _gates(gates: Mapping[str, str]) -> str:
    lines = [f"{bare(name)} = {toml(command)}" for name, command in gates.items()]
    lines = lines or ['# test = "make test"']
    return (
        "# Commands that must pass before work counts as done. Without any, work is called unproven.\n"
        "[gates]\n" + "\n".join(lines) + "\n"
    )


def _landing(target: str) -> str:
    return f"# The branch that work is for.\n[landing]\ntarget = {toml(target)}\n" if target else ""
