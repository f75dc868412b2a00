"""What a child's environment holds, and above all what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefleet.core.model import Run, Status, Task
from codefleet.core.settings import AgentType
from codefleet.engine import environment

TASK = Task(id="k3v9x2ab", project="p", title="T", status=Status.ASSIGNED, created_at=0, updated_at=0)
RUN = Run(
    id="k3v9x2ab.2", task_id="k3v9x2ab", project="p", number=2, epoch=2, engine="e", agent_id="runner-1", agent="claude"
)
OURS = {
    "HOME": "/home/me",
    "USER": "me",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "xterm-256color",
    "PATH": "/usr/bin:/bin",
    "https_proxy": "http://proxy:1",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
    "CODEFLEET_HOME": "/home/me/.codefleet",
    "CODEFLEET_ELASTIC_API_KEY": "e1",
    "ELASTIC_API_KEY": "e2",
    "KIBANA_API_KEY": "e3",
    "FLEET_HOME": "/x",
    "ANTHROPIC_API_KEY": "sk-ant-1",
    "OPENAI_API_KEY": "sk-2",
    "AWS_SECRET_ACCESS_KEY": "a",
    "GIT_DIR": "/elsewhere/.git",
    "PYTHONPATH": "/x",
    "LD_PRELOAD": "/x.so",
    "CLAUDECODE": "1",
}
CLAUDE = AgentType(driver="claude", keep=("ANTHROPIC_API_KEY",))


def made(environ: Mapping[str, str] = OURS, **about: Any) -> dict[str, str]:
    given_: dict[str, Any] = {"agent_type": CLAUDE, "token": "t0ken", "git": {}, **about}
    return environment.agent(
        environ,
        task=TASK,
        run=RUN,
        home_id="h1",
        task_dir=Path("/h/tasks/k3v9x2ab"),
        artifacts=Path("/h/tasks/k3v9x2ab/artifacts"),
        tmp=Path("/tmp/cf-1"),
        **given_,
    )


def test_an_agent_gets_what_a_person_has_and_its_own_task() -> None:
    made_ = made()
    path = made_.pop("PATH")
    assert path.split(":")[1:] == ["/usr/bin", "/bin"]
    assert made_ == {
        "HOME": "/home/me",
        "USER": "me",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "TMPDIR": "/tmp/cf-1",
        "https_proxy": "http://proxy:1",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "GIT_TERMINAL_PROMPT": "0",
        "ANTHROPIC_API_KEY": "sk-ant-1",
        "CODEFLEET_TASK_ID": "k3v9x2ab",
        "CODEFLEET_TASK_DIR": "/h/tasks/k3v9x2ab",
        "CODEFLEET_ARTIFACT_DIR": "/h/tasks/k3v9x2ab/artifacts",
        "FLEET_TASK_ID": "k3v9x2ab",
        "FLEET_TASK_DIR": "/h/tasks/k3v9x2ab",
        "FLEET_ARTIFACT_DIR": "/h/tasks/k3v9x2ab/artifacts",
        "CODEFLEET_RUN": "h1/k3v9x2ab.2",
        "CODEFLEET_RUN_TOKEN": "t0ken",
        "CODEFLEET_SPAWN_DEPTH": "0",
    }


def test_another_types_keys_do_not_pass() -> None:
    made_ = made(agent_type=AgentType(driver="x"))
    assert "ANTHROPIC_API_KEY" not in made_
    assert "OPENAI_API_KEY" not in made_


def test_what_an_agent_type_sets_beats_what_it_keeps() -> None:
    agent_type = AgentType(driver="x", keep=("MODE",), env={"MODE": "fast", "HOME": "/own"})
    made_ = made({**OURS, "MODE": "slow"}, agent_type=agent_type)
    assert (made_["MODE"], made_["HOME"]) == ("fast", "/own")


secret_names = st.sampled_from(
    ["CODEFLEET_HOME", "CODEFLEET_ELASTIC_API_KEY", "ELASTIC_API_KEY", "KIBANA_API_KEY", "FLEET_HOME", "codefleet_home"]
)


@settings(deadline=None, max_examples=50)
@given(keep=st.lists(secret_names), env=st.dictionaries(secret_names, st.just("forged")))
def test_no_configuration_hands_out_the_home_or_the_store(keep: list[str], env: dict[str, str]) -> None:
    agent_type = AgentType(driver="x", keep=tuple(keep), env={**env, "CODEFLEET_RUN_TOKEN": "forged"})
    environ = {**OURS, "codefleet_home": "/h"}
    made_ = made(environ, agent_type=agent_type)
    assert made_["CODEFLEET_RUN_TOKEN"] == "t0ken"
    assert not {"forged", "e1", "e2", "e3", "/h", "/home/me/.codefleet"} & set(made_.values())
    plain = environment.plain(environ, env=agent_type.env, git={}, tmp=Path("/t"))
    assert not {name for name in plain if name.upper().startswith(("CODEFLEET", "ELASTIC", "KIBANA", "FLEET"))}


def test_gits_variables_win_over_configured_ones() -> None:
    agent_type = AgentType(driver="x", env={"GIT_AUTHOR_NAME": "somebody"})
    assert made(agent_type=agent_type, git={"GIT_AUTHOR_NAME": "Me"})["GIT_AUTHOR_NAME"] == "Me"


def test_our_own_program_is_found_first() -> None:
    first = Path(made()["PATH"].split(":")[0])
    assert first == environment.programs()
    assert (first / "codefleet").exists()


@pytest.mark.parametrize("path", ["", ":", ".:/usr/bin", "relative:/usr/bin::/usr/bin"])
def test_programs_are_never_looked_up_in_the_workspace(path: str) -> None:
    entries = environment.path(path).split(":")
    assert all(entry.startswith("/") for entry in entries)
    assert len(entries) == len(set(entries))


def test_an_engine_without_a_path_still_finds_programs() -> None:
    entries = made({})["PATH"].split(":")
    assert "/usr/bin" in entries


def test_setup_and_gates_get_no_key_and_no_token() -> None:
    plain = environment.plain(OURS, env={"CI": "1"}, git={"GIT_AUTHOR_NAME": "Me"}, tmp=Path("/t"), run="h1/k.1")
    assert (plain["CI"], plain["GIT_AUTHOR_NAME"], plain["CODEFLEET_RUN"]) == ("1", "Me", "h1/k.1")
    assert not {"ANTHROPIC_API_KEY", "CODEFLEET_RUN_TOKEN", "CODEFLEET_TASK_ID", "LD_PRELOAD", "GIT_DIR"} & set(plain)


def test_a_real_child_sees_exactly_what_was_made() -> None:
    plain = environment.plain(dict(os.environ), env={"X": "a b\nc"}, git={}, tmp=Path("/tmp"))
    script = "import os; print(sorted(os.environ.items()))"
    out = subprocess.run([sys.executable, "-S", "-c", script], env=plain, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(
        sorted({"LC_CTYPE": "C.UTF-8", **plain}.items()) if "LC_CTYPE" in out.stdout else sorted(plain.items())
    )


def digest(**change: str) -> str:
    plain = environment.plain(OURS, env={"CI": "1"}, git={"GIT_CONFIG_COUNT": "1"}, tmp=Path("/t"), run="h/k.1")
    return environment.digest({**plain, **change}, ("uv sync",))


def test_the_same_environment_of_another_run_has_the_same_digest() -> None:
    assert digest(TMPDIR="/u", CODEFLEET_RUN="h/k.2", GIT_CONFIG_COUNT="2") == digest()


def test_what_can_change_a_verdict_changes_the_digest() -> None:
    assert digest(CI="0") != digest()
    assert digest(PATH="/opt/bin") != digest()
    plain = environment.plain(OURS, env={}, git={}, tmp=Path("/t"))
    assert environment.digest(plain, ()) != environment.digest(plain, ("uv sync",))
