"""Every key once: what it may hold, where it may stand, which variables set it, what it means.

Validation, `config show`, `config set`, the reference page and the files that `init` writes all come from this table.
Defaults are those of `core.settings`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

from codefleet.config import values
from codefleet.config.values import Kind, bare
from codefleet.core.settings import BUILT_IN, AgentType, Gate, Settings

Path = tuple[str, ...]

#: Tables whose entries a person names. `*` stands for the name in a key's path.
NAMED = frozenset({"agents", "gates"})
HOME_FILE = "runtime.toml"
PROJECT_FILES = ("codefleet.toml", ".codefleet/config.toml")

_ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
_LEVELS = values.one_of("DEBUG", "INFO", "WARNING", "ERROR")
#: Claude's tools that write anywhere when they are allowed without a path.
_WRITERS = ("Edit", "Write", "MultiEdit", "NotebookEdit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the configuration."""

    path: Path
    kind: Kind
    meaning: str
    home_only: bool = False
    """It says how this machine runs the fleet; a project file may not have it."""
    project_only: bool = False
    """It makes sense for one project only."""
    trust: bool = False
    """It can execute or loosen: from a project file only after a person trusted it."""
    written: bool = False
    """`init` writes it into the project's file."""
    variables: tuple[str, ...] = ()
    """Environment variables of its own, before the one that is made of its path."""
    seeds: tuple[str, ...] = ()
    """Variables of earlier tools that set it too."""
    aliases: tuple[str, ...] = ()
    """Flat names of earlier tools, for `config set`."""
    flag: str = ""
    """The command line's flag for it."""

    @property
    def name(self) -> str:
        return dotted(self.path)

    def default(self, entry: str = "") -> Any:
        """The value where nobody chose; `entry` is the name that stands for `*`."""
        if self.path[0] not in NAMED:
            return reduce(getattr, self.path, Settings())
        if self.path[0] == "agents" and entry in BUILT_IN:
            return getattr(BUILT_IN[entry], self.path[2])
        return _FIELDS[self.path[0]][self.path[2]]

    def native(self, path: Path) -> tuple[str, ...]:
        """The variables that set this key at a path, first one first."""
        return (*_filled(self.variables, path), "_".join(["CODEFLEET", *map(_capitals, path)]))

    def foreign(self, path: Path) -> tuple[str, ...]:
        """The variables of earlier tools that set it as well."""
        return _filled(self.seeds, path)


def _filled(variables: tuple[str, ...], path: Path) -> tuple[str, ...]:
    entry = _capitals(path[1]) if len(path) > 1 else ""
    return tuple(name.replace("*", entry) for name in variables)


def _defaults(kind: type[AgentType | Gate], empty: AgentType | Gate) -> dict[str, Any]:
    return {field.name: getattr(empty, field.name) for field in fields(kind)}


_FIELDS = {
    "agents": _defaults(AgentType, AgentType(driver="")),
    "gates": _defaults(Gate, Gate(name="", command="")),
}


def _capitals(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", part).upper()


def dotted(path: Iterable[str]) -> str:
    """A key as a person writes it."""
    return ".".join(part if part == "*" else bare(part) for part in path)


def _key(name: str, kind: Kind, meaning: str, marks: str = "", **more: Any) -> Key:
    """Marks: H home only, P project only, T needs trust, w written by `init`."""
    return Key(
        path=tuple(name.split(".")),
        kind=kind,
        meaning=meaning,
        home_only="H" in marks,
        project_only="P" in marks,
        trust="T" in marks,
        written="w" in marks,
        **more,
    )


KEYS: tuple[Key, ...] = (
    _key("store", values.one_of("sqlite"), "where the backlog is kept", "H"),
    _key(
        "max_concurrent",
        values.whole(),
        "slots of a `start` without --runners; 0 drains",
        "H",
        variables=("CODEFLEET_MAX_RUNNERS",),
        flag="--runners",
    ),
    _key(
        "max_agents",
        values.whole(1),
        "agents of any origin on this machine; above it work queues",
        "H",
        seeds=("FLEET_MAX_CONCURRENT",),
    ),
    _key("stale_after", values.seconds(some=True), "an engine that is silent for so long loses its tasks", "H"),
    _key(
        "heartbeat_interval",
        values.seconds(some=True),
        "how often an engine says that it lives",
        "H",
        seeds=("FLEET_HEARTBEAT_INTERVAL",),
    ),
    _key(
        "poll_interval",
        values.seconds(some=True),
        "the safety net under the events that drive the work",
        "H",
        aliases=("claim_poll_interval_sec",),
    ),
    _key(
        "shutdown_grace",
        values.seconds(),
        "from the first signal to the end of every agent",
        "H",
        aliases=("shutdown_grace_sec",),
    ),
    _key("log_level", _LEVELS, "the least that the log holds", "H"),
    _key(
        "log_status_interval",
        values.seconds(),
        "how often the log gets a line of counts; 0: never",
        "H",
        aliases=("status_log_interval_sec",),
    ),
    _key("keep_spools_days", values.whole(), "days that raw output of ended runs is kept; results stay for ever", "H"),
    _key("min_free_disk", values.size(), "with less free space nothing is started", "H"),
    _key(
        "agent.default",
        values.text(),
        "the agent type that runs a task which names none",
        variables=("CODEFLEET_AGENT",),
        seeds=("FLEET_DEFAULT_EXECUTOR",),
        aliases=("coder", "default_agent"),
        flag="--agent",
    ),
    _key("agent.model", values.text(), 'the model of the default agent; "": its own choice', aliases=("model",)),
    _key(
        "agent.claude_flags",
        values.shell_words(),
        "words added to Claude's command line",
        "T",
        aliases=("claude_flags",),
    ),
    _key(
        "agents.*.driver",
        values.driver("claude", "scripted", "command"),
        "the program behind this agent type: a driver's name or module:Class",
        "T",
    ),
    _key(
        "agents.*.model",
        values.text(),
        'the model of this agent type; "": its own choice',
        variables=("CODEFLEET_MODEL_*",),
        seeds=("FLEET_*_DEFAULT_MODEL",),
    ),
    _key("agents.*.flags", values.words(), "words added to its command line", "T"),
    _key(
        "agents.*.permissions",
        values.one_of("safe", "bypass"),
        "safe: its safest unattended mode; bypass: it asks nobody",
        "T",
    ),
    _key(
        "agents.*.allowed_tools", values.words(never=_WRITERS), "what it may use unasked, beside its own workspace", "T"
    ),
    _key("agents.*.max_turns", values.whole(), "turns of one session; 0: no limit"),
    _key("agents.*.account", values.text(), 'whose quota and login it uses; "": the agent type\'s name', "H"),
    _key("agents.*.keep", values.words(), "variables passed through to it; no other variable is inherited", "T"),
    _key("agents.*.env", values.variables(), "variables set for it; they beat `keep`", "T"),
    _key(
        "agents.*.command",
        values.words(),
        "its command line, never through a shell; {task_id} {prompt_file} {prompt} {model} {workspace} {task_dir} "
        "{artifacts_dir} are filled in",
        "T",
    ),
    _key("agents.*.stdin", values.one_of("none", "prompt"), "what its input is: nothing, or the prompt"),
    _key("agents.*.timeout_seconds", values.whole(), "seconds that a run may take; 0: limits.timeout_seconds"),
    _key("agents.*.script", values.path(), "the scripted agent's file of steps", "T"),
    _key("limits.attempts", values.whole(1), "failures of its own before a task is failed", aliases=("retry_limit",)),
    _key("limits.rounds", values.whole(), "red gates sent back within one run before the task is failed"),
    _key(
        "limits.timeout_seconds",
        values.whole(),
        "seconds that a run may take; 0: no limit",
        variables=("CODEFLEET_TIMEOUT",),
        seeds=("FLEET_DEFAULT_TIMEOUT",),
    ),
    _key("limits.question_live_minutes", values.whole(), "minutes that an agent's process waits for an answer"),
    _key("limits.max_output", values.size(), "what a run may print before it is ended"),
    _key("project.name", values.folder_name(), "the project's name; \"\": the folder's", "Pw"),
    _key(
        "project.worktree_root",
        values.path(),
        'where worktrees are made; may begin with ~ or $HOME; "": in the home',
        aliases=("worktree_root",),
    ),
    _key("project.branch", values.branch(), "names of branches, of {agent} {task} {id} {user} {date}"),
    _key("workspace.mode", values.one_of("worktree", "here"), "a worktree for each task, or the folder itself"),
    _key(
        "setup.credential_files",
        values.inner_paths(),
        "paths or globs copied into each new workspace and never committed",
        "w",
        aliases=("credential_files",),
    ),
    _key(
        "setup.commands",
        values.words(),
        "run in each new workspace, in order, each by `sh -c`; the first failure stops",
        "Tw",
        aliases=("setup_commands",),
    ),
    _key("setup.quick", values.flag(), "only copy, run no setup commands", aliases=("quick_setup",), flag="--quick"),
    _key("setup.timeout_seconds", values.whole(1), "seconds that each setup command may take"),
    _key(
        "gates.*.command", values.command(), "must pass: a text for `sh -c`, or a list that is run as it stands", "Tw"
    ),
    _key("gates.*.timeout_seconds", values.whole(1), "seconds that the gate may take", "T"),
    _key("gates.*.env", values.variables(), "variables set for the gate", "T"),
    _key("proof.flaky_reruns", values.whole(), "how often a red gate is tried again; green then is marked flaky"),
    _key("proof.parallel", values.whole(1), "proofs at a time in one project"),
    _key("proof.caches", values.inner_paths(), "globs that survive between proofs"),
    _key(
        "landing.target",
        values.ref(),
        'the branch that work is for; "": the remote\'s HEAD, else main, master, else the branch checked out',
        "Tw",
    ),
    _key(
        "landing.policy",
        values.one_of("", "none", "review"),
        'what happens to proven work; "": none with gates and without git, else review',
        "T",
    ),
)

_BY_PATH = {key.path: key for key in KEYS}
ALIASES: dict[str, Key] = {alias: key for key in KEYS for alias in key.aliases}
_SECTIONS = {key.path[:end] for key in KEYS for end in range(1, len(key.path))}


def _pattern(path: Path) -> Path:
    return (path[0], "*", *path[2:]) if len(path) > 1 and path[0] in NAMED else path


def find(path: Path) -> Key | None:
    """The key that stands at a path."""
    return _BY_PATH.get(_pattern(path))


def is_section(path: Path) -> bool:
    """May a table stand there?"""
    return _pattern(path) in _SECTIONS


def name_problem(path: Path) -> str:
    """Why the name that a person gave an agent type or a gate will not do; empty when it will."""
    if len(path) < 2 or path[0] not in NAMED or _ENTRY.fullmatch(path[1]):
        return ""
    return "a name of letters, digits, '.', '_' and '-' is wanted, at most 50, the first one a letter or digit"


def nearest(path: Path) -> str:
    """The key that was probably meant; empty when none is like it."""
    if alias := ALIASES.get(path[-1]):
        return alias.name
    import difflib

    shape = _pattern(path)
    known = {dotted(known): known for known in (*_BY_PATH, *_SECTIONS)}
    found = difflib.get_close_matches(dotted(shape), known, n=1, cutoff=0.6)
    found = found or [name for name, known_path in known.items() if known_path[-1] == path[-1]][:1]
    named = len(path) > 1 and path[0] in NAMED
    return found[0].replace("*", path[1]) if found and named else "".join(found)


def path_of(name: str) -> Path:
    """A key as a person writes it, as a path; `ValueError` when it is none."""
    table: Any = tomllib.loads(f"{name} = 0")
    path: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        path.extend(table)
        table = table[path[-1]]
    if table != 0:
        raise ValueError(f"{name!r} is no key")
    return tuple(path)
