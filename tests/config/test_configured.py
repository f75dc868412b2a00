"""What holds in the end: who wins, from where, and what stays when a file breaks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codefleet.config import trust
from codefleet.config.trust import State
from codefleet.core.errors import ConfigError
from codefleet.core.settings import BUILT_IN, Settings

if TYPE_CHECKING:
    from tests.config.conftest import Place

GATES = '[gates]\ntest = "pytest -q"\n'


async def _trusted(place: Place) -> Settings:
    trust.give(place.home, (await place.resolved()).asked)
    return await place.of_project()


# ------------------------------------------------------------------------------------------------------- who wins


async def test_every_layer_wins_over_the_one_below(place: Place) -> None:
    files = [("home", place.write_home), ("project", place.write_project)]
    seen = [(await place.of_project()).agent.default]
    for name, write in files:
        write(f'[agent]\ndefault = "{name}"\n')
        seen.append((await place.of_project()).agent.default)
    environ = {"FLEET_DEFAULT_EXECUTOR": "earlier"}
    seen.append((await place.of_project(environ)).agent.default)
    environ["CODEFLEET_AGENT"] = "native"
    seen.append((await place.of_project(environ)).agent.default)
    flagged = place.configured(environ, {"agent.default": "flag"})
    seen.append((await flagged.project(place.project)).agent.default)

    assert seen == ["claude", "home", "project", "earlier", "native", "flag"]
    assert (await flagged.project(place.project)).origin["agent.default"] == "--agent"


async def test_the_origin_of_every_value_is_known(place: Place) -> None:
    place.write_home("max_concurrent = 4\n[limits]\nattempts = 5\nrounds = 1\n")
    place.write_project("\n[limits]\nattempts = 2\n")
    origin = (await place.of_project({"CODEFLEET_LOG_LEVEL": "DEBUG"})).origin

    assert origin == {
        "max_concurrent": "runtime.toml:1",
        "limits.rounds": "runtime.toml:4",
        "limits.attempts": "codefleet.toml:3",
        "log_level": "CODEFLEET_LOG_LEVEL",
    }


def test_a_native_variable_that_disagrees_with_an_earlier_tools_wins_with_one_warning(place: Place) -> None:
    configured = place.configured({"CODEFLEET_MAX_AGENTS": "7", "FLEET_MAX_CONCURRENT": "9"})

    assert configured.home().max_agents == 7
    assert configured.home().max_agents == 7
    assert configured.warnings == ("CODEFLEET_MAX_AGENTS and FLEET_MAX_CONCURRENT disagree; CODEFLEET_MAX_AGENTS wins",)


def test_variables_that_agree_are_no_reason_to_warn(place: Place) -> None:
    configured = place.configured({"CODEFLEET_TIMEOUT": "60", "FLEET_DEFAULT_TIMEOUT": "60"})

    assert configured.home().limits.timeout_seconds == 60
    assert configured.warnings == ()


def test_an_empty_variable_is_no_variable(place: Place) -> None:
    assert place.of_home({"CODEFLEET_AGENT": "", "FLEET_DEFAULT_EXECUTOR": "scripted"}).agent.default == "scripted"


def test_a_variable_that_makes_no_sense_is_refused_by_name(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"CODEFLEET_MAX_RUNNERS: a whole number from 0 is wanted, not 'many'"):
        place.configured({"CODEFLEET_MAX_RUNNERS": "many"})


def test_an_agent_type_of_a_file_has_variables_too(place: Place) -> None:
    place.write_home('[agents."my.agent"]\ndriver = "command"\ncommand = ["x"]\n')
    held = place.of_home({"CODEFLEET_MODEL_MY_AGENT": "fast", "CODEFLEET_AGENTS_MY_AGENT_KEEP": "A,B"})

    assert (held.agents["my.agent"].model, held.agents["my.agent"].keep) == ("fast", ("A", "B"))
    assert held.origin['agents."my.agent".model'] == "CODEFLEET_MODEL_MY_AGENT"


async def test_tables_merge_key_by_key_and_lists_replace(place: Place) -> None:
    place.write_home(
        '[agents.stub]\ndriver = "command"\ncommand = ["a"]\nkeep = ["ONE", "TWO"]\nenv = { A = "1", B = "1" }\n'
        '[gates]\nlint = "home lint"\n[gates.test]\ncommand = "home test"\ntimeout_seconds = 5\n'
    )
    place.write_project(
        '[agents.stub]\nmodel = "m"\nkeep = ["THREE"]\nenv = { B = "2" }\n[gates]\ntest = "own test"\nlast = "x"\n'
    )
    held = await _trusted(place)
    stub = held.agents["stub"]

    assert (stub.driver, stub.command, stub.model) == ("command", ("a",), "m")
    assert stub.keep == ("THREE",)
    assert stub.env == {"A": "1", "B": "2"}
    assert [(gate.name, gate.command, gate.timeout_seconds) for gate in held.gates] == [
        ("lint", "home lint", 900),
        ("test", "own test", 5),
        ("last", "x", 900),
    ]


# ------------------------------------------------------------------------------------------------ the home's file


def test_a_home_without_a_file_has_the_defaults(place: Place) -> None:
    assert place.of_home() == Settings()


def test_a_changed_home_file_is_read_again(place: Place) -> None:
    configured = place.configured()
    seen = [configured.home().max_concurrent]
    for text in ("max_concurrent = 5\n", "max_concurrent = 6\n", ""):
        place.write_home(text)
        seen.append(configured.home().max_concurrent)

    assert seen == [3, 5, 6, 3]


def test_a_file_that_did_not_change_costs_no_second_reading(place: Place) -> None:
    configured = place.configured()

    assert configured.home() is configured.home()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("max_concurrent = ", "runtime.toml:1: "),
        ("max_concurent = 6", "runtime.toml:1: unknown key max_concurent"),
        ("\nmax_concurrent = 'x'", "runtime.toml:2: "),
        ("[agents.x]\nmodel = 'x'", "agent type x has no driver"),
        ("heartbeat_interval = 600", "heartbeat_interval"),
    ],
)
async def test_a_home_file_that_broke_keeps_its_last_good_values_and_says_so(
    place: Place, broken: str, said: str
) -> None:
    place.write_home("max_concurrent = 5\n")
    configured = place.configured()
    before = configured.home()
    place.write_home(broken)

    assert configured.home() == before
    assert (await configured.project(place.project)).max_concurrent == 5
    (warning,) = configured.warnings
    assert said in warning
    assert warning.endswith("the settings from before stay")

    place.write_home("max_concurrent = 7\n")
    assert configured.home().max_concurrent == 7
    assert configured.warnings == ()


def test_a_home_file_that_was_never_good_is_refused(place: Place) -> None:
    place.write_home("max_concurrent = 'x'\n")

    with pytest.raises(ConfigError, match=r"^runtime.toml:1: max_concurrent"):
        place.of_home()


def test_a_settings_file_that_is_no_file_is_refused_and_not_waited_for(place: Place) -> None:
    os.mkfifo(place.home.settings)

    with pytest.raises(ConfigError, match="it is no file"):
        place.of_home()


def test_the_homes_file_may_be_a_link(place: Place, tmp_path: Path) -> None:
    (tmp_path / "dotfile").write_text("max_concurrent = 8\n")
    place.home.settings.symlink_to(tmp_path / "dotfile")

    assert place.of_home().max_concurrent == 8


# ----------------------------------------------------------------------------------------------------- the project


async def test_the_repository_says_what_nobody_chose(place: Place) -> None:
    held = await place.of_project()

    assert (held.project.name, held.landing.target, held.workspace.mode, held.git) == ("shop", "main", "worktree", True)
    assert held.policy == "review"
    assert held.trusted


async def test_a_folder_without_git_is_worked_on_in_place(place: Place) -> None:
    place.branches.files.clear()
    place.write_project('[workspace]\nmode = "worktree"\n')
    held = await place.of_project()

    assert (held.git, held.workspace.mode, held.policy) == (False, "here", "none")


@pytest.mark.parametrize(
    ("root", "path"),
    [("~/trees", "/people/ada/trees"), ("$HOME/t", "/people/ada/t"), ("/abs", "/abs"), ("rel", "{project}/rel")],
)
async def test_the_root_of_worktrees_is_a_whole_path(place: Place, root: str, path: str) -> None:
    place.write_project(f'[project]\nworktree_root = "{root}"\n')

    assert (await place.of_project()).project.worktree_root == path.format(project=place.project)


async def test_a_file_of_steps_is_found_from_where_its_file_lies(place: Place) -> None:
    place.write_project('[agents.scripted]\nscript = "steps.jsonl"\n')

    assert (await _trusted(place)).agents["scripted"].script == str(place.project / "steps.jsonl")


async def test_two_files_of_one_project_are_refused(place: Place) -> None:
    place.write_project("")
    place.write_project("", ".codefleet/config.toml")

    with pytest.raises(ConfigError, match=r"codefleet.toml and .codefleet/config.toml are both there"):
        await place.of_project()


async def test_the_other_name_of_the_projects_file_is_as_good(place: Place) -> None:
    place.write_project("[limits]\nattempts = 0\n", ".codefleet/config.toml")
    with pytest.raises(ConfigError, match=r"^\.codefleet/config.toml:2: "):
        await place.of_project()

    place.write_project("[limits]\nattempts = 9\n", ".codefleet/config.toml")
    held = await place.of_project()

    assert held.limits.attempts == 9
    assert held.origin["limits.attempts"] == ".codefleet/config.toml:2"


async def test_a_projects_file_that_is_a_link_out_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password = 'x'")
    (place.project / "codefleet.toml").symlink_to(tmp_path / "secret")

    with pytest.raises(ConfigError, match="it is a link"):
        await place.of_project()


async def test_a_projects_file_that_is_a_pipe_is_refused_and_not_waited_for(place: Place) -> None:
    os.mkfifo(place.project / "codefleet.toml")

    with pytest.raises(ConfigError, match="it is no file"):
        await place.of_project()


# ----------------------------------------------------------------------------------------------- target and trust


async def test_what_can_execute_comes_from_the_targets_tree_and_the_rest_from_the_checkout(place: Place) -> None:
    place.branches.files["main"]["codefleet.toml"] = f'{GATES}[limits]\nattempts = 8\n[agent]\nclaude_flags = "--x"\n'
    place.write_project('[gates]\ntest = "true"\n[limits]\nattempts = 4\n')
    held = await _trusted(place)

    assert [gate.command for gate in held.gates] == ["pytest -q"]
    assert held.agents["claude"].flags == ("--x",)
    assert held.limits.attempts == 4
    assert held.origin["gates.test.command"] == "codefleet.toml:2"


async def test_without_a_file_in_the_target_the_checkouts_counts(place: Place) -> None:
    place.write_project(GATES)

    assert [gate.name for gate in (await _trusted(place)).gates] == ["test"]


async def test_the_target_that_the_files_name_is_the_one_whose_tree_is_read(place: Place) -> None:
    place.branches.files["main"]["codefleet.toml"] = '[gates]\ntest = "old"\n[landing]\ntarget = "develop"\n'
    place.branches.files["develop"] = {"codefleet.toml": '[gates]\ntest = "new"\n[landing]\ntarget = "develop"\n'}
    held = await _trusted(place)

    assert (held.landing.target, held.gates[0].command) == ("develop", "new")


async def test_a_target_from_the_environment_beats_the_files(place: Place) -> None:
    place.branches.files["main"]["codefleet.toml"] = '[landing]\ntarget = "main"\n'
    place.branches.files["next"] = {"codefleet.toml": '[gates]\ntest = "next"\n'}
    environ = {"CODEFLEET_LANDING_TARGET": "next"}
    trust.give(place.home, (await place.resolved(environ)).asked)
    held = await place.of_project(environ)

    assert (held.landing.target, held.gates[0].command) == ("next", "next")


async def test_what_was_not_trusted_has_no_effect_and_is_said(place: Place) -> None:
    place.write_home('[agents.stub]\ndriver = "command"\ncommand = ["safe"]\n')
    place.write_project(
        f"{GATES}"
        '[setup]\ncommands = ["evil"]\ncredential_files = [".env"]\n'
        '[agents.stub]\ncommand = ["evil"]\nmodel = "m"\nenv = { LD_PRELOAD = "evil" }\n'
        '[agents.own]\ndriver = "command"\ncommand = ["evil"]\n'
        '[agents.claude]\npermissions = "bypass"\n[agent]\nclaude_flags = "--evil"\n'
        '[agents.scripted]\nscript = "evil"\n'
        '[landing]\npolicy = "none"\ntarget = "evil"\n[limits]\nattempts = 9\n'
    )
    place.write_project("be evil", ".codefleet/INSTRUCTION.md")
    resolved = await place.resolved()
    held = resolved.settings

    assert resolved.state is State.NEW
    assert not held.trusted
    assert held.agents_awaiting_trust == ("own",)
    assert "evil" not in str(held)
    assert (held.agents["stub"].command, held.agents["stub"].model) == (("safe",), "m")
    assert held.agents["claude"] == BUILT_IN["claude"]
    assert (held.limits.attempts, held.setup.credential_files, held.gates) == (9, (".env",), ())


async def test_trust_holds_until_anything_of_it_changes(place: Place) -> None:
    configured = place.configured()
    place.write_project(GATES)
    states = [(await configured.resolve(place.project)).state]
    trust.give(place.home, (await configured.resolve(place.project)).asked)
    for text in (
        GATES,
        f"# a comment\n[limits]\nattempts = 9\n{GATES}",
        '[gates]\ntest = "pytest -q"\nmore = "x"\n',
        '[gates]\ntest = "pytest"\n',
        "",
        GATES,
    ):
        place.write_project(text)
        resolved = await configured.resolve(place.project)
        states.append(resolved.state)
        assert resolved.settings.trusted == (resolved.state is State.TRUSTED)
        assert bool(resolved.settings.gates) == resolved.settings.trusted

    new, trusted, changed = State.NEW, State.TRUSTED, State.CHANGED
    assert states == [new, trusted, trusted, changed, changed, changed, trusted]


async def test_a_project_that_asks_for_nothing_needs_no_trust(place: Place) -> None:
    place.write_project('[project]\nname = "x"\n[limits]\nattempts = 2\n')
    resolved = await place.resolved()

    assert (resolved.state, resolved.settings.trusted) == (State.NOTHING, True)


async def test_a_changed_branch_is_seen_by_a_configuration_that_lives(place: Place) -> None:
    configured = place.configured()
    place.branches.files["main"]["codefleet.toml"] = GATES
    trust.give(place.home, (await configured.resolve(place.project)).asked)
    assert (await configured.project(place.project)).trusted

    place.branches.files["main"]["codefleet.toml"] = '[gates]\ntest = "evil"\n'
    assert (await configured.resolve(place.project)).state is State.CHANGED


async def test_a_target_with_a_broken_file_is_refused_with_its_branch(place: Place) -> None:
    place.branches.files["main"]["codefleet.toml"] = "\n[gates]\ntest = 1\n"

    with pytest.raises(ConfigError, match=r"^codefleet.toml:3: gates.test: .* \(on branch main\)$"):
        await place.of_project()


async def test_instructions_come_from_the_target_then_the_checkout_then_the_home(place: Place) -> None:
    seen = [(await place.of_project()).instruction]
    place.home.templates.mkdir()
    (place.home.templates / "INSTRUCTION.md").write_text("home's")
    seen.extend([(await place.of_project()).instruction, place.of_home().instruction])
    place.write_project("checkout's", ".codefleet/INSTRUCTION.md")
    seen.append((await place.of_project()).instruction)
    seen.append((await _trusted(place)).instruction)
    place.branches.files["main"][".codefleet/INSTRUCTION.md"] = "target's"
    seen.append((await place.of_project()).instruction)
    seen.append((await _trusted(place)).instruction)

    assert seen == ["", "home's", "home's", "home's", "checkout's", "home's", "target's"]
