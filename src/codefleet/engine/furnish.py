"""Making a workspace ready: credential files and setup commands, in the agent's own and in those for proofs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from codefleet.engine import files
from codefleet.engine.case import Case
from codefleet.ports import Job, Workspace

LOCK_FILES = (
    "uv.lock poetry.lock Pipfile.lock requirements.txt package-lock.json yarn.lock pnpm-lock.yaml bun.lockb Cargo.lock "
    "go.sum Gemfile.lock composer.lock mix.lock"
).split()


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a workspace could not be made ready."""

    text: str


async def furnish(case: Case, workspace: Workspace, stamp: Path, *, again: bool = False) -> Trouble | None:
    """Copy and set up unless the stamp says that just this was done in this place already."""
    setup = case.settings.setup
    if setup.credential_files:
        await case.parts.workspaces.copy_files(case.repository, workspace.path, setup.credential_files)
    if setup.quick or not setup.commands:
        return None
    digest = await anyio.to_thread.run_sync(_digest, workspace.path, setup.commands)
    if not again and files.read(stamp) == digest:
        return None
    for command in setup.commands:
        trouble = await _run(case, workspace, command)
        if trouble:
            return trouble
    files.write(stamp, digest)
    return None


async def _run(case: Case, workspace: Workspace, command: str) -> Trouble | None:
    job = Job(
        argv=("sh", "-c", command),
        cwd=workspace.path,
        env=case.plain({}, case.parts.workspaces.environment(workspace)),
        limit=case.settings.setup.timeout_seconds,
        max_output=case.settings.limits.max_output,
    )
    status, text = await case.child("setup", job)
    if status.code == 0:
        return None
    ended = status.exec_error or (f"exit {status.code}" if status.known else "ended, its exit code was lost")
    last = text.strip().splitlines()[-1:] or [""]
    return Trouble(f"setup command `{command}` failed ({status.ended_by or ended}): {last[0][:200]}")


def _digest(folder: Path, commands: tuple[str, ...]) -> bytes:
    """Of the place, the commands and the lock files: when one of them changes, setup runs again."""
    about = [str(folder), *commands]
    for name in LOCK_FILES:
        data = files.read(folder / name, most=64 << 20)
        about.append(hashlib.sha256(data).hexdigest() if data is not None else "")
    return json.dumps(hashlib.sha256(json.dumps(about).encode()).hexdigest()).encode()
