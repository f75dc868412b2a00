"""What really happened, held against what the fleet says: ledger, processes, git and store."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import apsw

from codefleet.app import open_fleet
from codefleet.core.model import Fact, Run, Status, Task
from codefleet.processes.child import peek
from codefleet.testing.torture import parties
from codefleet.testing.torture.life import Life
from codefleet.testing.torture.world import World

GONE_WITHIN = 5.0
"""Seconds after the engine's end in which the last process of a run must be gone."""


@dataclass(frozen=True, slots=True)
class Story:
    """What the store tells of a life."""

    tasks: Mapping[str, Task]
    runs: Mapping[str, Run]
    facts: Sequence[Fact]

    def told(self, kind: str, key: str) -> Sequence[Fact]:
        return [fact for fact in self.facts if (fact.kind, fact.task_id) == (kind, key)]


#: What may be wrong → who looks for it. Each yields a sentence for each thing found.
Check = Callable[[Life, Story], Iterator[str]]


def examine(life: Life) -> Mapping[str, Sequence[str]]:
    """Every promise that was broken, by its name, with what was seen."""
    checks: Mapping[str, Check] = {
        "lost tasks": _lost_tasks,
        "double runs": _double_runs,
        "orphans": _orphans,
        "lost work": _lost_work,
        "false exit codes": _false_codes,
        "false proof": _false_proof,
        "damage": _damage,
    }
    story = anyio.run(_story, life)
    return {name: list(check(life, story)) for name, check in checks.items()}


async def _story(life: Life) -> Story:
    world = life.world
    async with open_fleet(world.home, environ=world.environ, cwd=world.repository) as fleet:
        held = await fleet.store.get(Task, life.tasks)
        runs = [run for one in held for run in await fleet.runs(one.value.id)]
        facts = [fact for one in held for fact in await fleet.store.facts(task=one.value.id, limit=10_000)]
    return Story({one.value.id: one.value for one in held}, {run.id: run for run in runs}, facts)


def _lost_tasks(life: Life, story: Story) -> Iterator[str]:
    """What was acknowledged is there, and is brought to its end, once."""
    if not life.ended:
        yield f"the engine did not come to an end: {_standing(story)}"
        return
    for key in life.tasks:
        task = story.tasks.get(key)
        if task is None:
            yield f"task {key} was acknowledged and is not there"
        elif task.status is not Status.COMPLETED:
            yield f"task {key} ({task.title}) is {task.status}: {task.error_message or task.hold or task.question}"
        elif len(story.told("task_completed", key)) != 1:
            yield f"task {key} was completed {len(story.told('task_completed', key))} times"


def _standing(story: Story) -> str:
    return ", ".join(f"{task.id} {task.status} run {task.run and task.run.id}" for task in story.tasks.values())


def _double_runs(life: Life, story: Story) -> Iterator[str]:
    """No two agents of a task at once, no workspace shared with what is left of an earlier one, no result twice."""
    for entry in life.world.entries("met"):
        if entry["task"] in life.tasks and (entry["alive"] or entry["other"]["cwd"] == entry["cwd"]):
            yield f"{entry['run']} met {entry['other']} in {entry['cwd']}"
    for key, task in story.tasks.items():
        assigned = [fact.run for fact in story.told("task_assigned", key)]
        if len(set(assigned)) != len(assigned) or len(assigned) != task.runs:
            yield f"{key} was assigned as {assigned} and has {task.runs} runs"
        rounds = Counter(fact.run or "" for fact in story.told("run_reported", key))
        yield from (
            f"{run} reported {times} times with {story.runs[run].round} rounds"
            for run, times in rounds.items()
            if run in story.runs and times > story.runs[run].round + 1
        )
    yield from (f"{key} has not ended" for key, run in story.runs.items() if life.ended and not run.ended)


def _orphans(life: Life, _: Story) -> Iterator[str]:
    """When the engine has ended by itself, nothing of its world lives."""
    until = time.monotonic() + GONE_WITHIN
    while (left := parties.marked(life.world)) and time.monotonic() < until:
        time.sleep(0.02)
    yield from (parties.described(pid) for pid in left)


def _lost_work(life: Life, _: Story) -> Iterator[str]:
    """Whatever an agent wrote is on a ref, or still where it was written."""
    kept = set(life.world.git("rev-list", "--objects", "--all").split())
    for entry in life.world.entries("wrote"):
        file = Path(entry["cwd"]) / entry["path"]
        if entry["task"] in life.tasks and entry["blob"] not in kept and not file.exists():
            yield f"{entry['path']} of {entry['run']} is nowhere"


def _false_codes(life: Life, story: Story) -> Iterator[str]:
    """A recorded exit code is the true one, or unknown."""
    announced = {entry["agent"]: entry["code"] for entry in life.world.entries("leaving")}
    killed = {one.pid for _, one in life.killed}
    for run in story.runs.values():
        for spool in sorted(life.world.home.spools(run.id).glob("*-agent")):
            status = peek(spool)
            said = announced.get(status.pid)
            if status.code == 0 and said != 0:
                yield f"{run.id}/{spool.name}: exit 0 was recorded, the agent said {said}"
            if status.code is not None and status.code > 0 and said is not None and said != status.code:
                yield f"{run.id}/{spool.name}: exit {status.code} was recorded, the agent said {said}"
            if status.pid in killed and status.code not in {None, -9, said}:
                yield f"{run.id}/{spool.name}: exit {status.code} was recorded of an agent that was killed"
        if run.exit_known and run.exit_code is None:
            yield f"{run.id}: a known exit code that is none"


def _false_proof(life: Life, story: Story) -> Iterator[str]:
    """Completed means: a commit that holds the run's own work and that of its upstreams, with green gates."""
    for task in story.tasks.values():
        if task.status is not Status.COMPLETED:
            continue
        evidence = task.evidence
        if evidence is None or not evidence.commit or not task.proven or not all(one.green for one in evidence.gates):
            yield f"{task.id} is completed on {evidence}"
            continue
        if "RED" in life.world.git("ls-tree", "--name-only", evidence.commit).split():
            yield f"{task.id} is completed on a tree that its gate refuses"
        for upstream in (story.tasks[key] for key in task.depends_on if key in story.tasks):
            head = upstream.evidence.commit if upstream.evidence else None
            if head and not _contains(life.world, evidence.commit, head):
                yield f"{task.id} does not contain {upstream.id}, which it depends on"


def _contains(world: World, commit: str, ancestor: str) -> bool:
    asked = ["git", "merge-base", "--is-ancestor", ancestor, commit]
    return subprocess.run(asked, cwd=world.repository, env=world.environ, check=False).returncode == 0


def _damage(life: Life, _: Story) -> Iterator[str]:
    """Database, repository and the person's checkout are whole."""
    world = life.world
    connection = apsw.Connection(str(world.home.database), flags=apsw.SQLITE_OPEN_READWRITE)
    said: list[Any] = [row[0] for row in connection.execute("pragma integrity_check")]
    connection.close()
    if said != ["ok"]:
        yield f"the database: {said[:3]}"
    checked = subprocess.run(
        ["git", "fsck", "--connectivity-only", "--no-dangling", "--no-progress"],
        cwd=world.repository,
        env=world.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode:
        yield f"the repository: {checked.stderr[:300]}"
    if changed := world.git("status", "--porcelain"):
        yield f"the person's checkout: {changed[:300]}"
    if len(world.git("rev-list", "main").split()) != 1:
        yield "the target branch was moved"
