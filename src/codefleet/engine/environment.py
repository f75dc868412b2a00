"""The environment of every child, built from nothing: what is not named here does not pass."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from codefleet.core.model import Run, Task
from codefleet.core.settings import AgentType

PERSON = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ")
NETWORK = (
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO"
).split()
TEST = "CODEFLEET_TEST"
"""Our own tests find by this what they left behind."""

RUN = "CODEFLEET_RUN"
TOKEN = "CODEFLEET_RUN_TOKEN"  # noqa: S105  the name of a variable, not a token
ARTIFACTS = "CODEFLEET_ARTIFACT_DIR"

_OURS = (RUN, TOKEN, TEST, "CODEFLEET_TASK_ID", "CODEFLEET_TASK_DIR", ARTIFACTS, "CODEFLEET_SPAWN_DEPTH")
_STORES = ("ELASTIC_", "KIBANA_", "CODEFLEET_", "FLEET_", "AI_FLEET_")
_FOR_ONE_RUN = frozenset({"TMPDIR", RUN, TEST})


def agent(
    environ: Mapping[str, str],
    *,
    agent_type: AgentType,
    task: Task,
    run: Run,
    home_id: str,
    task_dir: Path,
    artifacts: Path,
    tmp: Path,
    token: str,
    git: Mapping[str, str],
    depth: int = 0,
) -> dict[str, str]:
    """What an agent of this type gets: the common part, what its type keeps and sets, git's and its own task's."""
    kept = {name: environ[name] for name in agent_type.keep if name in environ}
    return {
        **_common(environ, tmp),
        **_allowed(kept),
        **_allowed(agent_type.env),
        **git,
        **_task(task, task_dir, artifacts),
        RUN: marker(home_id, run.id),
        TOKEN: token,
        "CODEFLEET_SPAWN_DEPTH": str(depth),
    }


def plain(
    environ: Mapping[str, str], *, env: Mapping[str, str], git: Mapping[str, str], tmp: Path, run: str = ""
) -> dict[str, str]:
    """What setup commands and gates get; `run` is the marker of whose child it is."""
    return {**_common(environ, tmp), **_allowed(env), **git, **({RUN: run} if run else {})}


def marker(home_id: str, run: str) -> str:
    """What every descendant of a run can be found by."""
    return f"{home_id}/{run}"


def digest(env: Mapping[str, str], setup_commands: Sequence[str]) -> str:
    """What tells two environments apart in which the same gate may answer differently. What only names this one run
    (its temp folder, its marker, git's guard) does not count."""
    counted = {name: value for name, value in env.items() if name not in _FOR_ONE_RUN and not name.startswith("GIT_")}
    parts = [counted, platform.system(), platform.machine(), list(setup_commands)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _common(environ: Mapping[str, str], tmp: Path) -> dict[str, str]:
    wanted = [*PERSON, *NETWORK, TEST, *(name for name in environ if name.startswith("LC_"))]
    found = {name: environ[name] for name in wanted if name in environ}
    return {
        **found,
        "PATH": path(environ.get("PATH", os.defpath)),
        "TERM": "dumb",
        "TMPDIR": str(tmp),
        "GIT_TERMINAL_PROMPT": "0",
    }


def _task(task: Task, task_dir: Path, artifacts: Path) -> dict[str, str]:
    about = {"TASK_ID": task.id, "TASK_DIR": str(task_dir), "ARTIFACT_DIR": str(artifacts)}
    return {f"{prefix}_{name}": value for prefix in ("CODEFLEET", "FLEET") for name, value in about.items()}


def _allowed(variables: Mapping[str, str]) -> dict[str, str]:
    """Without what reaches the store or speaks in our own name, whoever asked for it."""
    return {name: value for name, value in variables.items() if not name.upper().startswith(_STORES)}


def path(inherited: str) -> str:
    """Our own programs first, then the engine's; relative entries would be looked up in the agent's workspace."""
    return os.pathsep.join(
        _once([str(programs()), *(entry for entry in inherited.split(os.pathsep) if entry[:1] == "/")])
    )


def programs() -> Path:
    """The folder that our own `codefleet` lies in."""
    beside = Path(sys.executable).parent
    found = None if (beside / "codefleet").exists() else shutil.which("codefleet")
    return Path(found).parent if found else beside


def _once(entries: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(entries))
