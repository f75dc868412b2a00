"""Every key of the table: what it takes, what it refuses, where it may stand, which variables set it."""

from __future__ import annotations

import dataclasses
from functools import reduce
from typing import Any

import pytest

from codefleet.config import initial, keys, reference
from codefleet.config.document import Place, read
from codefleet.config.environment import given, variables
from codefleet.config.keys import KEYS, Key
from codefleet.config.merging import settings
from codefleet.config.values import toml
from codefleet.core.errors import ConfigError
from codefleet.core.settings import AgentType, Gate, Settings

#: For each key a value that it takes (as TOML), the same as a variable says it, and one that it refuses (as TOML).
EXAMPLES: dict[str, tuple[str, str, str]] = {
    "store": ('"sqlite"', "sqlite", '"elastic"'),
    "max_concurrent": ("0", "0", "-1"),
    "max_agents": ("7", "7", "0"),
    "stale_after": ("240", "240", "0"),
    "heartbeat_interval": ("2.5", "2.5", "true"),
    "poll_interval": ("0.5", "0.5", '"soon"'),
    "shutdown_grace": ("0", "0", "-0.1"),
    "log_level": ('"DEBUG"', "DEBUG", '"debug"'),
    "log_status_interval": ("0", "0", "[]"),
    "keep_spools_days": ("1", "1", "1.5"),
    "min_free_disk": ('"2GB"', "2GB", '"much"'),
    "agent.default": ('"scripted"', "scripted", "1"),
    "agent.model": ('"opus"', "opus", "{}"),
    "agent.claude_flags": ('"--verbose"', "--verbose", '"it\'s"'),
    "agents.*.driver": ('"scripted"', "scripted", '"nobody"'),
    "agents.*.model": ('"sonnet"', "sonnet", "2"),
    "agents.*.flags": ('["--a", "b"]', "--a,b", '"--a"'),
    "agents.*.permissions": ('"bypass"', "bypass", '"all"'),
    "agents.*.allowed_tools": ('["Edit(src/**)"]', "Edit(src/**)", '["Edit"]'),
    "agents.*.max_turns": ("9", "9", '"9"'),
    "agents.*.account": ('"team"', "team", "false"),
    "agents.*.keep": ('["SSH_AUTH_SOCK"]', "SSH_AUTH_SOCK", "[1]"),
    "agents.*.env": ('{ MODE = "fast" }', "MODE=fast", '{ "A-B" = "x" }'),
    "agents.*.command": ('["run", "{prompt}"]', '["run", "{prompt}"]', '"run {prompt}"'),
    "agents.*.stdin": ('"prompt"', "prompt", '"queue"'),
    "agents.*.timeout_seconds": ("60", "60", "-60"),
    "agents.*.script": ('"~/steps"', "~/steps", '"$OTHER/steps"'),
    "limits.attempts": ("5", "5", "0"),
    "limits.rounds": ("0", "0", "0.5"),
    "limits.timeout_seconds": ("600", "600", '"10m"'),
    "limits.question_live_minutes": ("1", "1", "-1"),
    "limits.max_output": ('"10MB"', "10MB", '"10 MiB"'),
    "project.name": ('"shop"', "shop", '"a/b"'),
    "project.worktree_root": ('"$HOME/trees"', "$HOME/trees", '"$TMPDIR/trees"'),
    "project.branch": ('"ai/{id}"', "ai/{id}", '"{person}/{id}"'),
    "workspace.mode": ('"here"', "here", '"checkout"'),
    "setup.credential_files": ('[".env", "config/*.key"]', ".env,config/*.key", '["../.env"]'),
    "setup.commands": ('["uv sync && true"]', "uv sync && true", "[[]]"),
    "setup.quick": ("true", "yes", '"yes"'),
    "setup.timeout_seconds": ("1", "1", "0"),
    "gates.*.command": ('["pytest", "-q"]', '["pytest", "-q"]', '"  "'),
    "gates.*.timeout_seconds": ("3", "3", "0"),
    "gates.*.env": ('{ A = "1" }', "A=1", "{ A = 1 }"),
    "proof.flaky_reruns": ("0", "0", "-1"),
    "proof.parallel": ("2", "2", "0"),
    "proof.caches": ('[".venv"]', ".venv", '["/tmp"]'),
    "landing.target": ('"release/1"', "release/1", '"../../fifo"'),
    "landing.policy": ('"review"', "review", '"auto"'),
}

every_key = pytest.mark.parametrize("key", KEYS, ids=[key.name for key in KEYS])


def _path(key: Key) -> keys.Path:
    """A place for the key, with a name where it wants one."""
    return tuple("mine" if part == "*" else part for part in key.path)


def _file(key: Key, value: str) -> bytes:
    path = _path(key)
    above = {"agents": 'driver = "command"\ncommand = ["x"]\n', "gates": 'command = "x"\n'}.get(path[0], "")
    own = "".join(line for line in above.splitlines(keepends=True) if not line.startswith(f"{path[-1]} ="))
    header = f"[{'.'.join(path[:-1])}]\n" if len(path) > 1 else ""
    return f"{header}{own}{path[-1]} = {value}\n".encode()


def _last_line(content: bytes) -> int:
    return content.count(b"\n")


def _place(key: Key) -> Place:
    return Place.PROJECT if key.project_only else Place.HOME


def _held(settings: Settings, key: Key) -> Any:
    if key.path[0] == "agents":
        return getattr(settings.agents["mine"], key.path[2])
    if key.path[0] == "gates":
        return getattr(settings.gates[0], key.path[2])
    return reduce(getattr, key.path, settings)


def test_the_table_has_every_field_of_the_settings_and_nothing_else() -> None:
    filled_by_us = {"git", "instruction", "trusted", "agents_awaiting_trust", "origin", "agents", "gates"}
    fields = set()
    for field in dataclasses.fields(Settings):
        value = getattr(Settings(), field.name)
        if dataclasses.is_dataclass(value):
            fields |= {f"{field.name}.{inner.name}" for inner in dataclasses.fields(value)}
        elif field.name not in filled_by_us:
            fields.add(field.name)
    fields |= {f"agents.*.{field.name}" for field in dataclasses.fields(AgentType)}
    fields |= {f"gates.*.{field.name}" for field in dataclasses.fields(Gate) if field.name != "name"}

    assert {key.name for key in KEYS} == fields
    assert len(KEYS) == len(fields)
    assert set(EXAMPLES) == fields


@every_key
def test_a_key_takes_what_it_should_and_remembers_the_line(key: Key) -> None:
    content = _file(key, EXAMPLES[key.name][0])
    document = read(content, "some.toml", _place(key)).demand()

    assert document.entries[_path(key)].origin == f"some.toml:{_last_line(content)}"


@every_key
def test_a_wrong_value_is_refused_with_file_and_line(key: Key) -> None:
    content = _file(key, EXAMPLES[key.name][2])
    problems = read(content, "some.toml", _place(key)).problems

    assert len(problems) == 1
    assert problems[0].text.startswith(f"some.toml:{_last_line(content)}: {'.'.join(_path(key))}: ")
    with pytest.raises(ConfigError, match=r"wanted"):
        read(content, "some.toml", _place(key)).demand()


@every_key
def test_a_file_and_a_variable_say_the_same(key: Key) -> None:
    as_toml, as_text, _ = EXAMPLES[key.name]
    document = read(_file(key, as_toml), "some.toml", _place(key)).demand()
    for variable in (*key.native(_path(key)), *key.foreign(_path(key))):
        layer, warnings = variables({variable: as_text}, {"agents": ["mine"], "gates": ["mine"]})

        assert layer[_path(key)].value == document.entries[_path(key)].value
        assert layer[_path(key)].origin == variable
        assert not warnings


@every_key
def test_what_a_file_says_is_what_the_settings_hold(key: Key) -> None:
    document = read(_file(key, EXAMPLES[key.name][0]), "some.toml", _place(key)).demand()
    held = _held(settings(document.entries), key)

    assert held == document.entries[_path(key)].value


@every_key
def test_a_key_in_the_wrong_file_is_refused_and_the_right_one_named(key: Key) -> None:
    content = _file(key, EXAMPLES[key.name][0])
    in_home, in_project = (read(content, "some.toml", place).problems for place in (Place.HOME, Place.PROJECT))

    assert bool(in_project) == key.home_only
    assert bool(in_home) == key.project_only
    assert all("runtime.toml" in problem.text for problem in in_project)
    assert all("codefleet.toml" in problem.text for problem in in_home)


@every_key
def test_every_default_is_a_value_that_the_key_takes(key: Key) -> None:
    if key.name not in {"agents.*.driver", "gates.*.command"}:
        assert key.kind.check(key.default()) == key.default()


def test_defaults_are_those_of_the_settings() -> None:
    assert settings({}) == Settings()


def test_no_two_keys_share_a_variable_or_an_alias() -> None:
    native = [name for key in KEYS for name in key.native(_path(key))]
    foreign = [name for key in KEYS for name in key.foreign(_path(key))]
    aliases = [alias for key in KEYS for alias in key.aliases]

    assert len({*native, *foreign}) == len(native) + len(foreign)
    assert len(set(aliases)) == len(aliases)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("CODEFLEET_STORE", "store"),
        ("CODEFLEET_AGENT", "agent.default"),
        ("FLEET_DEFAULT_EXECUTOR", "agent.default"),
        ("CODEFLEET_MODEL_CLAUDE", "agents.claude.model"),
        ("FLEET_CLAUDE_DEFAULT_MODEL", "agents.claude.model"),
        ("CODEFLEET_MAX_RUNNERS", "max_concurrent"),
        ("CODEFLEET_MAX_AGENTS", "max_agents"),
        ("FLEET_MAX_CONCURRENT", "max_agents"),
        ("CODEFLEET_TIMEOUT", "limits.timeout_seconds"),
        ("FLEET_DEFAULT_TIMEOUT", "limits.timeout_seconds"),
        ("CODEFLEET_HEARTBEAT_INTERVAL", "heartbeat_interval"),
        ("FLEET_HEARTBEAT_INTERVAL", "heartbeat_interval"),
        ("CODEFLEET_POLL_INTERVAL", "poll_interval"),
        ("CODEFLEET_LOG_LEVEL", "log_level"),
        ("CODEFLEET_LIMITS_ATTEMPTS", "limits.attempts"),
        ("CODEFLEET_AGENTS_CLAUDE_MAX_TURNS", "agents.claude.max_turns"),
    ],
)
def test_the_documented_variables_set_their_keys(variable: str, key: str) -> None:
    text = EXAMPLES[key.replace("claude", "*")][1]
    layer, _ = variables({variable: text}, {"agents": ["claude"]})

    assert [keys.dotted(path) for path in layer] == [key]


@pytest.mark.parametrize(
    ("alias", "key"),
    [
        ("coder", "agent.default"),
        ("default_agent", "agent.default"),
        ("model", "agent.model"),
        ("claude_flags", "agent.claude_flags"),
        ("retry_limit", "limits.attempts"),
        ("claim_poll_interval_sec", "poll_interval"),
        ("shutdown_grace_sec", "shutdown_grace"),
        ("status_log_interval_sec", "log_status_interval"),
        ("worktree_root", "project.worktree_root"),
        ("credential_files", "setup.credential_files"),
        ("setup_commands", "setup.commands"),
        ("quick_setup", "setup.quick"),
    ],
)
def test_flat_names_of_earlier_tools_lead_to_our_keys(alias: str, key: str) -> None:
    assert keys.ALIASES[alias].name == key
    assert keys.nearest((alias,)) == key


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (("max_concurent",), "max_concurrent"),
        (("limits", "attemps"), "limits.attempts"),
        (("agents", "stub", "comand"), "agents.stub.command"),
        (("gates", "test", "timeout"), "gates.test.timeout_seconds"),
        (("limit",), "limits"),
        (("setup", "attempts"), "limits.attempts"),
        (("xyzzy",), ""),
    ],
)
def test_the_nearest_name_is_what_was_probably_meant(written: keys.Path, meant: str) -> None:
    assert keys.nearest(written) == meant


def test_flags_set_keys_and_are_their_origin() -> None:
    layer = given({"max_concurrent": "4", "agent.default": "scripted", "limits.attempts": "2"})

    assert [(entry.value, entry.origin) for entry in layer.values()] == [
        (4, "--runners"),
        ("scripted", "--agent"),
        (2, "--attempts"),
    ]


def test_a_flag_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--runners: a whole number from 0 is wanted, not 'many'"):
        given({"max_concurrent": "many"})
    with pytest.raises(ConfigError, match="unknown key colour"):
        given({"colour": "red"})


def test_the_reference_page_has_every_key_with_its_meaning() -> None:
    page = reference.page()
    for key in KEYS:
        row = next(line for line in page.splitlines() if f"`{key.path[-1]}`" in line and key.meaning in line)
        assert ("*trust*" in row) == key.trust
        assert ("| home" in row) == key.home_only


def test_the_files_of_init_name_each_key_of_the_home() -> None:
    text = initial.runtime_toml()
    wanted = [key for key in KEYS if key.home_only or key.path[0] in {"agent", "agents", "limits"}]

    assert all(f"# {key.path[-1]} = " in text for key in wanted if key.path[-1] != "script")


def test_a_key_is_written_so_that_it_reads_back() -> None:
    for path in (("limits", "attempts"), ("agents", "my.agent", "driver"), ("gates", 'odd "name"', "command")):
        assert keys.path_of(keys.dotted(path)) == path


@pytest.mark.parametrize("text", ["", "a b", "a = 1\nb", "a.", "[a]", "a = 5 #", "# a", "a, b"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of tomllib's or ours
        keys.path_of(text)


def test_values_are_shown_as_toml() -> None:
    assert toml({"A": "x", "b c": ["y", 1, True]}) == '{ A = "x", "b c" = ["y", 1, true] }'
