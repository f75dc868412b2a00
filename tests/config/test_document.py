"""One file: what is refused, and that every refusal names its line and what was meant."""

from __future__ import annotations

import pytest

from codefleet.config.document import Document, Place, read
from codefleet.config.merging import settings
from codefleet.core.errors import ConfigError
from codefleet.core.settings import Gate

HOME = """
store = "sqlite"
max_concurrent = 5
min_free_disk = "1GB"

[agent]
default = "stub"
claude_flags = "--verbose"

[agents.claude]
model = "opus"
permissions = "bypass"

[agents.stub]
driver = "command"
command = [
    "my-agent",     # argv, never a shell
    "--task", "{task_id}",
]
stdin = "prompt"
env = { MODE = "fast" }
keep = ["SSH_AUTH_SOCK"]
timeout_seconds = 600

[limits]
attempts = 2
max_output = "512MB"
"""

PROJECT = """
[project]
name = "my-project"
worktree_root = "~/trees"

[setup]
credential_files = [".env"]
commands = ["uv sync", "make generated && true"]

[gates]
lint = "ruff check ."
[gates.test]
command = ["pytest", "-q"]
timeout_seconds = 60

[landing]
target = "main"
policy = "review"
"""


def _read(text: str, place: Place = Place.PROJECT) -> Document:
    return read(text.encode(), "codefleet.toml" if place is Place.PROJECT else "runtime.toml", place)


def _only_problem(text: str, place: Place = Place.PROJECT) -> str:
    (problem,) = _read(text, place).problems
    return f"{problem.text} {problem.hint}".strip()


def test_a_whole_home_file_is_taken() -> None:
    held = settings(_read(HOME, Place.HOME).demand().entries)

    assert (held.max_concurrent, held.min_free_disk, held.agent.default) == (5, 1 << 30, "stub")
    assert held.agents["stub"].command == ("my-agent", "--task", "{task_id}")
    assert held.agents["stub"].env == {"MODE": "fast"}
    assert held.agents["claude"].model == "opus"
    assert held.agents["claude"].keep == ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    assert held.limits.attempts == 2
    assert held.limits.rounds == 3
    assert held.origin["agents.stub.command"] == "runtime.toml:16"
    assert held.origin["agents.stub.env"] == "runtime.toml:21"


def test_a_whole_project_file_is_taken_with_gates_in_their_order() -> None:
    held = settings(_read(PROJECT).demand().entries)

    assert held.project.name == "my-project"
    assert held.setup.commands == ("uv sync", "make generated && true")
    assert held.gates == (
        Gate(name="lint", command="ruff check ."),
        Gate(name="test", command=("pytest", "-q"), timeout_seconds=60),
    )
    assert held.policy == "review"
    assert held.origin["gates.lint.command"] == "codefleet.toml:11"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nattemps = 3", "codefleet.toml:2: unknown key limits.attemps Did you mean limits.attempts?"),
        ("\n[limmits]\nattempts = 3", "codefleet.toml:2: unknown key limmits Did you mean limits?"),
        ("retry_limit = 3", "codefleet.toml:1: unknown key retry_limit Did you mean limits.attempts?"),
        ("[elastic]\nurl = 'x'", "codefleet.toml:1: unknown key elastic"),
        ("[[routing]]\nagent = 'x'", "codefleet.toml:1: unknown key routing"),
        ("limits = 3", "codefleet.toml:1: limits: a table is wanted, not 3"),
        ("[[limits]]\nattempts = 3", "codefleet.toml:1: limits: a table is wanted, not [{ attempts = 3 }]"),
        ("limits.attempts = '3'", 'codefleet.toml:1: limits.attempts: a whole number from 1 is wanted, not "3"'),
        ("max_agents = 3", "codefleet.toml:1: max_agents belongs into the home's runtime.toml"),
        ("[gates]\n[gates.test]", "codefleet.toml:2: gates.test: an empty table says nothing"),
        ("[agents]\nclaude = 'x'", 'codefleet.toml:2: agents.claude: a table is wanted, not "x"'),
        (
            "[gates]\ntest = 5",
            "codefleet.toml:2: gates.test: a command as text, or as a list of texts is wanted, not 5",
        ),
        (
            "[landing]\npolicy = 'auto'",
            'codefleet.toml:2: landing.policy: "" or "none" or "review" is wanted, not "auto"',
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_was_meant(text: str, said: str) -> None:
    assert _only_problem(text) == said


@pytest.mark.parametrize("name", ['"../x"', '"a b"', '""', '"-x"', '"é"', '"' + "x" * 51 + '"'])
def test_names_of_gates_and_agent_types_can_be_names_of_files(name: str) -> None:
    assert "a name of letters" in _only_problem(f'[gates]\n{name} = "true"')
    assert "a name of letters" in _only_problem(f'[agents.{name}]\nmodel = "x"')


@pytest.mark.parametrize("tool", ["Edit", "Write", "MultiEdit", "NotebookEdit"])
def test_a_tool_that_may_write_anywhere_is_refused(tool: str) -> None:
    assert f"{tool} alone may write anywhere" in _only_problem(f'[agents.claude]\nallowed_tools = ["Read", "{tool}"]')


def test_all_that_is_wrong_is_found_at_once() -> None:
    problems = _read("[limits]\nattempts = 0\nrounds = 'x'\n[project]\nnam = 'x'\n").problems

    assert [problem.text.split(": ")[0] for problem in problems] == [f"codefleet.toml:{line}" for line in (2, 3, 5)]


@pytest.mark.parametrize(
    "content", [b"a = ", b"\xff\xfe", b"a = 1\na = 2", b"x = " + b"[" * 5000, b"\x00", b"[a]\n[a]"]
)
def test_what_is_no_toml_is_said_and_never_raised(content: bytes) -> None:
    (problem,) = read(content, "codefleet.toml", Place.PROJECT).problems

    assert problem.text.startswith("codefleet.toml")
    assert "no valid TOML" in problem.text


def test_the_line_of_a_syntax_error_is_named() -> None:
    assert _only_problem("[limits]\nattempts = = 3").startswith("codefleet.toml:2: ")


def test_the_first_problem_is_an_error_with_a_hint() -> None:
    with pytest.raises(ConfigError) as caught:
        _read("[limits]\nattemps = 3").demand()

    assert caught.value.hint == "Did you mean limits.attempts?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agents.mine]\nmodel = 'x'", "codefleet.toml:2: agent type mine has no driver"),
        ("[agents.mine]\ndriver = 'command'", "codefleet.toml:2: agent type mine has no command"),
        ("[gates.test]\ntimeout_seconds = 5", "codefleet.toml:2: gate test has no command"),
    ],
)
def test_an_entry_that_lacks_what_makes_it_one_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(_read(text).demand().entries)

    assert caught.value.message == said


def test_a_heartbeat_slower_than_what_counts_as_silence_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"runtime.toml:1: heartbeat_interval \(150\) must be less than stale_after"):
        settings(_read("heartbeat_interval = 150", Place.HOME).demand().entries)


def test_claude_flags_arrive_at_every_agent_type_of_claudes_driver() -> None:
    text = """
    [agent]
    claude_flags = "--dangerously-skip-permissions --append 'two words'"
    [agents.second]
    driver = "claude"
    flags = ["--own"]
    """
    held = settings(_read(text).demand().entries)

    assert held.agents["claude"].flags == ("--append", "two words")
    assert held.agents["second"].flags == ("--own", "--append", "two words")
    assert held.agents["scripted"].flags == ()
    assert [agent.permissions for agent in held.agents.values()] == ["bypass", "safe", "bypass"]
    assert held.origin["agents.claude.permissions"] == "codefleet.toml:3"


def test_permissions_that_were_chosen_beat_the_flag() -> None:
    text = '[agent]\nclaude_flags = "--dangerously-skip-permissions"\n[agents.claude]\npermissions = "safe"\n'
    claude = settings(_read(text).demand().entries).agents["claude"]

    assert (claude.permissions, claude.flags) == ("safe", ())


@pytest.mark.parametrize(
    "text",
    [
        # examples of people who come from an earlier tool
        (
            '[project]\nname = "r"\n[setup]\ncredential_files = ["config/master.key", ".env"]\n'
            'commands = ["bundle install", "yarn install", "RAILS_ENV=test bundle exec rails db:create db:migrate"]\n'
        ),
        '[setup]\ncredential_files = [".env", ".env.local"]\ncommands = ["npm install", "npm run build"]\n',
        (
            '[setup]\ncredential_files = [".env", "secrets.json"]\ncommands = ["uv sync", "python manage.py migrate"]\n'
            "quick = true\n"
        ),
    ],
    ids=["rails", "node", "python"],
)
def test_examples_of_other_projects_are_taken(text: str) -> None:
    assert settings(_read(text).demand().entries).setup.commands
