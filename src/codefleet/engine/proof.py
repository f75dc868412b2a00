"""Prove a tree: run the project's gates on it, where no agent has worked, and remember that they were green."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from codefleet.core.errors import CodeFleetError, Exists, GitError, NoSpace
from codefleet.core.model import GateResult, Proof, Task
from codefleet.core.settings import Gate
from codefleet.engine import environment, views
from codefleet.engine.case import GONE, Case
from codefleet.engine.furnish import furnish
from codefleet.ports import ChildState, ChildStatus, Job, Workspace

CANNOT_RUN = frozenset({126, 127})
MOST_LOST = 3
"""So often a gate is run again whose exit code was lost."""
TURN = 0.2
"""Seconds between looks at whether another engine has left the proof worktree."""


@dataclass(frozen=True, slots=True)
class Green:
    gates: tuple[GateResult, ...]


@dataclass(frozen=True, slots=True)
class Red:
    result: GateResult
    gate: Gate
    log: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """Gates that can not run blame nobody."""

    text: str


async def prove(case: Case, commit: str, tree: str) -> Green | Red | Stuck:
    """What the gates say of this tree. Green is remembered; red and stuck are tried again when asked again."""
    key = proof_id(case, tree) if tree else ""
    if key:
        for held in await case.parts.store.get(Proof, [key]):
            return Green(held.value.gates)
    try:
        said = await _in_place(case) if case.workspace and not tree else await _apart(case, commit)
    except (GitError, NoSpace) as error:
        return Stuck(f"no place to run the gates in: {error.message}")
    if isinstance(said, Green) and key:
        await _remember(case, key, tree, said)
    return said


async def may_run(case: Case, task: Task) -> bool:
    """May gates that could not run be tried again: has a person lifted the hold, or given the project other gates that
    are trusted?"""
    if task.hold is None or task.hold.kind != "gates":
        return True
    try:
        settings = await case.parts.configuration.project(case.repository)
    except CodeFleetError:
        return False
    if not settings.trusted or (case.settings.trusted and settings.gates == case.settings.gates):
        return False
    case.settings = settings
    return True


async def _remember(case: Case, key: str, tree: str, said: Green) -> None:
    now = case.parts.clock.now()
    with suppress(Exists):  # another engine has proven the same tree meanwhile
        await case.parts.store.add(Proof(id=key, project=case.project, tree=tree, gates=said.gates, made_at=now))


def proof_id(case: Case, tree: str) -> str:
    """What a proof is remembered by: the tree, the gates, the environment."""
    env = environment.plain(case.parts.environ, env={}, git={}, tmp=Path("/"))
    parts = [tree, gate_digest(case.settings.gates), environment.digest(env, case.settings.setup.commands)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def gate_digest(gates: tuple[Gate, ...]) -> str:
    about = [[gate.name, gate.command, gate.timeout_seconds, dict(gate.env)] for gate in gates]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


async def _in_place(case: Case) -> Green | Red | Stuck:
    """Without git there is one place only: the folder itself."""
    if case.workspace is None:  # pragma: no cover - a run that reports has one
        return Stuck("the workspace is not there")
    return await _gates(case, case.workspace)


async def _apart(case: Case, commit: str) -> Green | Red | Stuck:
    """In one of the project's proof worktrees, reset to exactly the commit."""
    async with _place(case) as path:
        place = case.parts.workspaces.proof
        await case.patiently(lambda: place(case.repository, path, commit, case.settings.proof.caches))
        there = Workspace(path=path, repository=case.repository, git=True, base=commit)
        again = not case.settings.proof.caches
        trouble = await furnish(case, there, path.with_name(path.name + ".setup"), again=again)
        return Stuck(trouble.text) if trouble else await _gates(case, there)


@asynccontextmanager
async def _place(case: Case) -> AsyncIterator[Path]:
    """A proof worktree that is ours alone; what a dead engine's gates left running in it is ended first."""
    root = worktree_root(case)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    numbers = range(1, case.settings.proof.parallel + 1)
    paths = [root / f".proof-{k}" for k in numbers]
    while True:
        for path in paths:
            lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            try:
                await _evict(case, lock)
                yield path
            finally:
                os.close(lock)
            return
        await anyio.sleep(TURN)


async def _evict(case: Case, lock: int) -> None:
    """End the children of the run that was here last, and note that this run is here now."""
    before = os.pread(lock, 4096, 0).decode("utf-8", "replace")
    spools = Path(before) if before else None
    if spools is not None and spools != case.spools and spools.is_dir():
        for name in sorted(entry.name for entry in spools.iterdir() if entry.name.endswith(("-gate", "-setup"))):
            if case.parts.processes.peek(spools / name).state not in {ChildState.ABSENT, ChildState.DONE}:
                child = await case.parts.processes.adopt(spools / name)
                if child is not None:
                    await child.stop(GONE)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(case.spools).encode(), 0)


def worktree_root(case: Case) -> Path:
    """Where the project's worktrees are."""
    chosen = case.settings.project.worktree_root
    if chosen:
        return Path(os.path.expandvars(chosen)).expanduser()
    return case.parts.home.worktrees(case.project)


async def _gates(case: Case, workspace: Workspace) -> Green | Red | Stuck:
    """All gates in their order; the first that is not green ends it."""
    results: list[GateResult] = []
    for gate in case.settings.gates:
        result, log, stuck = await _gate(case, workspace, gate)
        if stuck:
            return Stuck(stuck)
        if not result.green:
            return Red(result, gate, log)
        results.append(result)
    return Green(tuple(results))


async def _gate(case: Case, workspace: Workspace, gate: Gate) -> tuple[GateResult, str, str]:
    """One gate's result, its log, and why it could not run at all. Red is tried again as often as configured."""
    result, log, stuck = await _once(case, workspace, gate)
    for _ in range(case.settings.proof.flaky_reruns):
        if stuck or result.green:
            break
        second, log, stuck = await _once(case, workspace, gate)
        result = replace(second, flaky=second.green)
    return result, log, stuck


async def _once(case: Case, workspace: Workspace, gate: Gate) -> tuple[GateResult, str, str]:
    began = case.parts.clock.now()
    status, log = await case.child("gate", _job(case, workspace, gate))
    for _ in range(MOST_LOST):
        if status.known or status.exec_error:
            break
        status, log = await case.child("gate", _job(case, workspace, gate))
    log = case.scrubber.text(log)
    views.keep_gate(case.parts.home, case.key, case.number, gate.name, log.encode())
    result = GateResult(
        name=gate.name,
        exit_code=status.code,
        duration_ms=case.parts.clock.now() - began,
        log_sha256=hashlib.sha256(log.encode()).hexdigest(),
    )
    return result, log, _cannot_run(gate, status, log)


def _cannot_run(gate: Gate, status: ChildStatus, log: str) -> str:
    if status.exec_error or not status.known:
        return f"gate {gate.name} can not run: {status.exec_error or 'its exit code is lost again and again'}"
    if status.code in CANNOT_RUN and not status.ended_by:
        last = log.strip().splitlines()[-1:] or [""]
        return f"gate {gate.name} can not run (exit {status.code}): {last[0][:200]}"
    return ""


def _job(case: Case, workspace: Workspace, gate: Gate) -> Job:
    argv = ("sh", "-c", gate.command) if isinstance(gate.command, str) else gate.command
    return Job(
        argv=argv,
        cwd=workspace.path,
        env=case.plain(gate.env, case.parts.workspaces.environment(workspace)),
        limit=gate.timeout_seconds,
        max_output=case.settings.limits.max_output,
    )
