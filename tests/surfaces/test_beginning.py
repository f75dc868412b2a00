"""`init`, `trust`, `config`, `doctor`, `completion`: before the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from codefleet.core.model import Engine, Status
from codefleet.testing import samples

if TYPE_CHECKING:
    from tests.surfaces.conftest import Person

GATES = '[gates]\ntest = "true"\n'


def test_init_makes_home_and_project_and_says_what_it_found(person: Person) -> None:
    (person.cwd / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.pytest]\n')
    said = person("init")
    assert said.code == 0
    assert f"Fleet home initialized at {person.home.path}" in said.out
    assert "project project (python)" in said.out
    assert "runs as the gate test: pytest -q" in said.out.replace('"', "")
    assert "agent scripted:" in said.out
    assert "not trusted yet" in said.err
    written = tomllib.loads((person.cwd / "codefleet.toml").read_text())
    assert written["gates"] == {"test": "pytest -q"}
    assert tomllib.loads(person.home.settings.read_text()) == {}
    assert person.git("status", "--porcelain") == "?? codefleet.toml\n?? pyproject.toml"
    assert ".codefleet/run/" in (person.cwd / ".git" / "info" / "exclude").read_text()


def test_init_again_changes_nothing_and_force_keeps_what_was_there(person: Person) -> None:
    person("init", "--trust")
    person("config", "set", "max_concurrent=7")
    file = person.cwd / "codefleet.toml"
    file.write_text(GATES)
    before = person.home.settings.read_text()
    again = person("init", "--json")
    assert again.code == 0
    assert again.data["written"] == []
    assert (file.read_text(), person.home.settings.read_text()) == (GATES, before)
    person("init", "--force", "--type", "minimal")
    assert file.with_name("codefleet.toml.before").read_text() == GATES
    assert person.home.settings.with_name("runtime.toml.before").read_text() == before


def test_init_outside_a_repository_makes_the_home_only(person: Person) -> None:
    outside = person.cwd.parent
    said = person("-C", str(outside), "init")
    assert said.code == 0
    assert "no git repository here" in said.out
    assert not (outside / "codefleet.toml").exists()
    assert person.home.settings.exists()


def test_init_of_the_home_alone_and_of_another_home(person: Person) -> None:
    person("init", "--home")
    assert not (person.cwd / "codefleet.toml").exists()
    other = person.home.path.parent / "other"
    person("init", "--home", str(other))
    assert (other / "runtime.toml").exists()
    assert (person.cwd / "codefleet.toml").exists()


def test_init_refuses_a_type_that_there_is_not(person: Person) -> None:
    said = person("init", "--type", "cobol")
    assert said.code == 2
    assert "rails node python generic minimal" in said.err


def test_trust_is_given_for_exactly_what_was_shown_and_asked_again_when_it_changes(person: Person) -> None:
    file = person.cwd / "codefleet.toml"
    file.write_text(GATES)
    assert person("trust").code == 1
    shown = person("trust", "--show")
    assert (shown.code, "runs as the gate test" in shown.out) == (0, True)
    assert person("trust", "--yes").code == 0
    assert person("trust", "--json").data["state"] == "trusted"
    file.write_text(GATES.replace("true", "rm -rf /"))
    changed = person("trust")
    assert changed.code == 1
    assert "(changed)" in changed.out
    assert person("trust", "--revoke").out == "nothing of it may run here any more\n"
    assert person("trust", "--revoke").out == "it was not trusted\n"


def test_trust_lets_tasks_go_that_waited_for_it(person: Person) -> None:
    (person.cwd / "codefleet.toml").write_text(GATES)
    key = person.added("First", "--agent", "scripted")
    assert person("start", "--until-idle", "-q").code == 0
    assert person("show", key, "--json").data["hold"]["kind"] == "trust"
    assert "codefleet trust" in person("why", key).out
    person("trust", "--yes")
    assert person("show", key, "--json").data["hold"] is None


def test_an_agent_type_that_awaits_trust_may_be_asked_for(person: Person) -> None:
    (person.cwd / "codefleet.toml").write_text('[agents.own]\ndriver = "command"\ncommand = ["touch", "done"]\n')
    key = person.added("First", "--agent", "own")
    assert person("start", "--until-idle", "-q").code == 0
    assert person("show", key, "--json").data["hold"]["kind"] == "trust"
    assert person("edit", key, "--agent", "own", "-p", "5").code == 0
    assert person("add", "Second", "--agent", "other").code == 2


def test_a_runner_works_with_an_agent_type_of_the_project_that_it_is_started_in(person: Person) -> None:
    (person.cwd / "codefleet.toml").write_text('[agents.own]\ndriver = "command"\ncommand = ["touch", "done"]\n')
    person("trust", "--yes")
    key = person.added("First")
    assert person("run-single", "--name", "ada", "--agent", "own", "--until-idle", "-q").code == 0
    assert person("show", key, "--json").data["runs"][0]["agent"] == "own"
    assert person("-C", "..", "run-single", "--name", "ada", "--agent", "own", "--until-idle").code == 2


# --------------------------------------------------------------------------------------------------------- config


def test_config_shows_what_holds_and_where_it_comes_from(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person("init", "--trust")
    person("config", "set", "limits.attempts=5")
    monkeypatch.setenv("CODEFLEET_MAX_RUNNERS", "9")
    rows = {row["key"]: row for row in person("config", "show", "--json").data}
    assert (rows["limits.attempts"]["value"], rows["max_concurrent"]["value"]) == (5, 9)
    assert rows["max_concurrent"]["origin"] == "CODEFLEET_MAX_RUNNERS"
    assert "limits.attempts = 5  # runtime.toml:" in person("config", "--show-origin").out
    assert person("config").out == person("config", "show").out
    assert person("config", "show", "--raw").out.rstrip() == person.home.settings.read_text().rstrip()


@pytest.mark.parametrize(
    "assignment", ["max_conccurrent=3", "max_concurrent=many", "max_concurrent", "agent.default=cloude"]
)
def test_a_setting_that_makes_no_sense_is_refused_and_nothing_changes(person: Person, assignment: str) -> None:
    person("init", "--home")
    before = person.home.settings.read_text()
    said = person("config", "set", assignment)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert person.home.settings.read_text() == before


def test_config_set_writes_the_project_s_file_when_asked(person: Person) -> None:
    person("config", "set", "--project", "limits.attempts=2")
    assert tomllib.loads((person.cwd / "codefleet.toml").read_text()) == {"limits": {"attempts": 2}}


def test_config_set_writes_the_project_s_file_wherever_it_lies(person: Person) -> None:
    file = person.cwd / ".codefleet" / "config.toml"
    file.parent.mkdir()
    file.write_text("[limits]\nattempts = 3 # enough\n")
    assert person("config", "set", "--project", "limits.rounds=2", "--json").data["path"] == str(file)
    assert file.read_text() == "[limits]\nattempts = 3 # enough\nrounds = 2\n"
    assert not (person.cwd / "codefleet.toml").exists()


def test_config_set_in_no_project_is_refused(person: Person) -> None:
    person.cwd = person.cwd.parent
    said = person("config", "set", "--project", "limits.attempts=2")
    assert said.code == 2
    assert "this is no project" in said.err


@pytest.mark.parametrize("args", [["config"], ["config", "validate"], ["trust", "--show"], ["trust", "--revoke"]])
def test_settings_are_shown_without_a_store_and_whatever_its_condition(person: Person, args: list[str]) -> None:
    assert "there is no fleet" not in person(*args).err
    person.home.path.mkdir(mode=0o700, exist_ok=True)
    person.home.database.write_bytes(b"no database at all" * 100)
    assert person(*args).code == 0


def test_config_validate_names_each_error_with_its_line(person: Person) -> None:
    assert person("config", "validate").code == 0
    (person.cwd / "codefleet.toml").write_text("[limits]\nattempts = 0\n\n[gate]\n")
    said = person("config", "--validate")
    assert said.code == 1
    assert "codefleet.toml:2" in said.out
    assert "codefleet.toml:4" in said.out
    assert len(person("config", "-v", "--json").data) == 2


def test_config_edit_opens_the_editor_and_checks_what_it_left(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = person.home.path.parent / "my editor"
    editor.write_text('#!/bin/sh\nprintf "max_concurrent = no\\n" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", f"'{editor}'")
    said = person("config", "edit")
    assert said.code == 1
    assert "runtime.toml:1" in said.out
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert person("config", "-e").code == 1


# --------------------------------------------------------------------------------------------------------- doctor


def test_doctor_says_what_is_installed_and_forgets_an_engine_that_ended_without_a_word(person: Person) -> None:
    host = os.uname().nodename
    person.store(Engine(id="e_gone", host=host, pid=1, version="0", slots=1, name="gone"))
    person.home.path.chmod(0o755)
    found = {one["name"]: one for one in person("doctor", "--json").data}
    assert found["git"]["text"].startswith("git version")
    assert found["engine"]["hint"] == "--fix forgets it"
    assert found["home"]["ok"] is False
    fixed = person("doctor", "--fix").out
    assert "fixed  engine: gone has ended" in fixed
    assert person.home.path.stat().st_mode & 0o777 == 0o700
    assert "engine" not in {one["name"] for one in person("doctor", "--json").data}


def test_doctor_writes_the_files_of_tasks_anew(person: Person) -> None:
    key = person.added("First")
    assert not (person.home.task(key) / "log.jsonl").exists()
    person("doctor", "--fix")
    [line] = (person.home.task(key) / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["event"] == "task_created"


def test_what_an_engine_left_is_named_and_kept(person: Person) -> None:
    host = os.uname().nodename
    person.store(Engine(id="e_1", host=host, pid=1, version="0", slots=1), samples.started())
    found = [one for one in person("doctor", "--json", "--fix").data if one["name"] == "engine"]
    assert "owns aaaaaaaa" in found[0]["text"]
    assert person("show", "aaaaaaaa", "--json").data["status"] == Status.IN_PROGRESS.value


# ----------------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_every_name_of_the_program(person: Person, shell: str) -> None:
    said = person("completion", shell)
    assert said.code == 0
    for name in ("codefleet", "fleet", "flt"):
        assert f"_{name.upper()}_COMPLETE={shell}_complete" in said.out


def test_completion_answers_with_commands(person: Person) -> None:
    environ = {**os.environ, "_CODEFLEET_COMPLETE": "bash_complete", "COMP_WORDS": "codefleet ta", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "codefleet"], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert "plain,task" in done.stdout.splitlines()
    assert "plain,tasks" in done.stdout.splitlines()


def test_completion_offers_the_ids_of_tasks_with_their_titles(person: Person) -> None:
    key = person.added("Fix the login")
    environ = {
        **os.environ,
        "_CODEFLEET_COMPLETE": "zsh_complete",
        "COMP_WORDS": f"codefleet show {key[:3]}",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "codefleet"], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.split("\n")[:3] == ["plain", key, "Fix the login"]
