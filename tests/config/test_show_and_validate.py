"""What people see of their settings: what holds, from where, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from codefleet.config import edit, legacy, trust
from codefleet.config.keys import KEYS
from codefleet.config.show import rows
from codefleet.config.validate import validate
from codefleet.core.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from tests.config.conftest import Place


async def test_every_key_is_shown_with_value_and_origin(place: Place) -> None:
    place.write_home('min_free_disk = "2048MB"\n[agents.claude]\nmodel = "opus"\n')
    place.write_project('[gates]\ntest = ["pytest", "-q"]\n')
    trust.give(place.home, (await place.resolved()).asked)
    shown = {row.key: (row.text, row.origin) for row in rows(await place.of_project({"CODEFLEET_STORE": "sqlite"}))}

    assert shown["min_free_disk"] == ('"2GB"', "runtime.toml:1")
    assert shown["agents.claude.model"] == ('"opus"', "runtime.toml:3")
    assert shown["gates.test.command"] == ('["pytest", "-q"]', "codefleet.toml:2")
    assert shown["store"] == ('"sqlite"', "CODEFLEET_STORE")
    assert shown["limits.attempts"] == ("3", "default")
    assert shown["landing.target"] == ('"main"', "default")
    per_agent = sum(key.path[0] == "agents" for key in KEYS)
    assert len(shown) == len(KEYS) + per_agent  # two agent types and one gate


async def test_values_of_variables_are_never_shown(place: Place) -> None:
    place.write_home(
        '[agents.claude]\nenv = { TOKEN = "s3cret", MODE = "fast" }\n[gates.x]\ncommand = "y"\nenv = { K = "s3cret" }'
    )
    shown = {row.key: row.text for row in rows(await place.of_project())}

    assert shown["agents.claude.env"] == '{ TOKEN = "***", MODE = "***" }'
    assert shown["gates.x.env"] == '{ K = "***" }'
    assert "s3cret" not in str(shown)


def test_good_files_have_no_findings(place: Place) -> None:
    place.write_home("max_concurrent = 2\n")
    place.write_project('[project]\nworktree_root = "trees"\n[setup]\ncredential_files = [".e*"]\n')
    (place.project / ".env").write_text("")

    assert validate(place.home) == ()
    assert validate(place.home, place.project) == ()


def test_missing_files_are_no_findings(place: Place) -> None:
    assert validate(place.home, place.project) == ()


def test_everything_that_is_wrong_in_both_files_is_found(place: Place) -> None:
    place.write_home("max_concurrent = 'x'\nmax_agent = 1\n")
    place.write_project("[limits]\nattempts = 0\n")

    assert [problem.text.split(":")[:2] for problem in validate(place.home, place.project)] == [
        ["runtime.toml", "1"],
        ["runtime.toml", "2"],
        ["codefleet.toml", "2"],
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[agent]\ndefault = "codex"\n', "codefleet.toml:2: there is no agent type codex"),
        ('[setup]\ncredential_files = [".env"]\n', "codefleet.toml:2: setup.credential_files: there is no .env"),
        ('[setup]\ncredential_files = ["**x"]\n', "codefleet.toml:2: setup.credential_files: there is no **x"),
        (
            '[project]\nworktree_root = "a-file"\n',
            "codefleet.toml:2: project.worktree_root: {project}/a-file is no folder",
        ),
        (
            '[project]\nworktree_root = "a-file/below"\n',
            "codefleet.toml:2: project.worktree_root: {project}/a-file/below lies in {project}/a-file, which is no folder",
        ),
        ('[agents.scripted]\nscript = "steps"\n', "codefleet.toml:2: agents.scripted.script: there is no steps"),
        ('[agents.x]\ndriver = "command"\n', "codefleet.toml:2: agent type x has no command"),
    ],
)
def test_what_will_not_work_is_found(place: Place, text: str, found: str) -> None:
    (place.project / "a-file").write_text("")
    place.write_project(text)
    (problem,) = validate(place.home, place.project)

    assert problem.text == found.format(project=place.project)


def test_two_project_files_are_a_finding(place: Place) -> None:
    place.write_project("")
    place.write_project("", ".codefleet/config.toml")
    (problem,) = validate(place.home, place.project)

    assert problem.text == "codefleet.toml and .codefleet/config.toml are both there"


# ------------------------------------------------------------------------------------------------- earlier tools

OLD = """\
repo_root = "~/code/shop"
worktree_root = "~/.ai_fleet/worktrees"
tmux_prefix = "ai_"
default_agent = "claude"
claude_flags = "--dangerously-skip-permissions"
credential_files = [".env"]
setup_commands = ["bundle install", "npm install"]
quick_setup = true
"""


async def test_settings_of_an_earlier_tool_are_taken_over_and_the_old_file_stays(place: Place, tmp_path: Path) -> None:
    old = tmp_path / "config.toml"
    old.write_text(OLD)
    place.write_project('# mine\n[project]\nname = "shop"\n')
    imported = legacy.bring_in(old, place.home, place.project)
    trust.give(place.home, (await place.resolved()).asked)
    held = await place.of_project()

    assert imported.left_out == {
        "repo_root": "the project is where it lies",
        "tmux_prefix": "there are no such sessions",
    }
    assert held.project.worktree_root == "/people/ada/.ai_fleet/worktrees"
    assert held.setup.commands == ("bundle install", "npm install")
    assert (held.setup.credential_files, held.setup.quick) == ((".env",), True)
    assert held.agents["claude"].permissions == "bypass"
    assert (place.project / "codefleet.toml").read_text().startswith('# mine\n[project]\nname = "shop"\n')
    assert old.read_text() == (tmp_path / "config.toml.backup").read_text() == OLD


def test_what_has_no_place_here_is_left_out_with_its_reason() -> None:
    text = (
        b'default_agent = "codecs"\nmax_concurrent = 2\n[setup]\nquick = 1\n[project]\nname = "x"\n[ui]\ncolour = 1\n'
    )
    imported = legacy.understood(text, "old")

    assert dict(imported.values) == {("project", "name"): "x"}
    assert imported.left_out == {
        "default_agent": "there is no agent type codecs",
        "max_concurrent": "it belongs into the home's file",
        "setup.quick": "true or false is wanted",
        "ui.colour": "there is no such key",
    }


def test_an_old_file_that_is_not_there_or_broken_is_said_to_be_so(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        legacy.bring_in(tmp_path / "none", place.home, place.project)
    with pytest.raises(ConfigError, match="old: this is no valid TOML"):
        legacy.understood(b"a = ", "old")


def test_what_validation_calls_good_can_be_set(place: Place) -> None:
    edit.set_in_project(place.home, ["gates.test=true", "landing.policy=review"], place.project)

    assert validate(place.home, place.project) == ()
