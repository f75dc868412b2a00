"""Starting an agent's child, taking up those that ran, and what they are told."""

from __future__ import annotations

import uuid
from pathlib import Path

import anyio.to_thread

from codefleet.core.model import Task
from codefleet.core.transitions import runs
from codefleet.engine import environment, files, requests
from codefleet.engine.bell import Bell
from codefleet.engine.case import Case, output
from codefleet.engine.talk import Said, Talk, Told, keep, kept
from codefleet.ports import ChildState, ChildStatus, Command, Job, Order, Workspace

SPACE = uuid.UUID("0e0f4f0c-3b0a-4d7e-9f0a-6d2d1c9b7c11")


def uuid_of(case: Case, round_: int) -> str:
    """The id of the message of a round: the same whoever sends it, so that it is never taken twice."""
    return str(uuid.uuid5(SPACE, f"{case.parts.home_id}/{case.run_id}/{round_}"))


def kept_at(case: Case, spool: str) -> Path:
    """Where is kept what the child of this spool was told."""
    return case.folder / "told" / f"{spool}.json"


def keep_message(case: Case, round_: int, text: str) -> None:
    files.write(case.folder / f"round-{round_}.md", text.encode("utf-8", "replace"))


def message(case: Case, round_: int) -> str:
    """What the agent is told in a further round."""
    data = files.read(case.folder / f"round-{round_}.md")
    return (data or b"A gate was red. Run the gates, repair what they show, and end your turn.").decode()


def errors(case: Case, spool: str) -> str:
    """The end of what a child wrote to its standard error."""
    return output(case.spools / spool, ("err",))


async def adopt(case: Case, bell: Bell) -> list[Talk]:
    """All children of the agent that ever ran in this run, as they are now; what they were told is told again."""
    found = []
    for name in case.names():
        said = kept(kept_at(case, name)) if name.endswith("-agent") else None
        if said is None or case.parts.processes.peek(case.spools / name).state is ChildState.ABSENT:
            continue
        child = await case.parts.processes.adopt(case.spools / name)
        if child is not None:
            talk = Talk(case.run_id, name, child, case.driver, said, bell)
            await case.patiently(talk.say_again)
            found.append(talk)
    return found


async def speak(case: Case, task: Task, text: str, bell: Bell, *, resume: bool, session: str) -> Talk:
    """A new child of the agent on a spool of its own. What it is told is on disk before it runs."""
    where, run = case.workspace, case.run_of(task)
    if where is None or run is None:  # pragma: no cover - nobody speaks before there is a place to work in
        raise AssertionError(f"{case.run_id} has no workspace")
    if not case.token:
        await _new_token(case)
    prompt_file = await anyio.to_thread.run_sync(_write_prompt, case, text)
    order = _order(case, task, where, prompt_file, text, session or run.session_id, resume=resume, round_=run.round)
    command = case.driver.command(order)
    name = case.next_name("agent")
    said = Said(resume=resume, told=tuple(_told(command, run.round)))
    keep(kept_at(case, name), said)
    child = await case.parts.processes.start(case.spools / name, _job(case, task, where, command, prompt_file))
    talk = Talk(case.run_id, name, child, case.driver, said, bell)
    await case.patiently(talk.say_again)
    return talk


async def _new_token(case: Case) -> None:
    """A child that another engine's token died with gets a new one."""
    token, digest = requests.new_token()
    await case.commit(lambda task, at: runs.learn(task, task.run.epoch if task.run else 0, at, token=digest))
    case.token = token


def _write_prompt(case: Case, text: str) -> Path:
    """Where the agent may read it, and beside the run for people."""
    data = text.encode("utf-8", "replace")
    files.write(case.folder / "prompt.md", data)
    path = case.beside_agent / "prompt.md"
    if path.parent != case.folder:
        files.write(path, data)
    return path


def _told(command: Command, round_: int) -> list[Told]:
    """One entry a message; a child that reads none has still been told by its start."""
    uuids = [*command.uuids, *("" for _ in range(len(command.messages) - len(command.uuids)))]
    pairs = zip(uuids, command.messages, strict=False)
    return [Told(round=round_, uuid=key, line=line.decode()) for key, line in pairs] or [Told(round=round_)]


def _order(
    case: Case, task: Task, where: Workspace, prompt_file: Path, text: str, session: str, *, resume: bool, round_: int
) -> Order:
    run = case.run_of(task)
    return Order(
        task_id=case.key,
        run=case.run_id,
        workspace=where.path,
        task_dir=case.parts.home.task(case.key),
        artifacts=case.artifacts,
        prompt_file=prompt_file,
        prompt=text,
        model=run.model if run else "",
        session_id=session,
        resume=resume,
        round=round_ + 1,
        gates=tuple(gate.command for gate in case.settings.gates),
        description=task.description,
        message_id=uuid_of(case, round_),
    )


def _job(case: Case, task: Task, where: Workspace, command: Command, prompt_file: Path) -> Job:
    run = case.run_of(task)
    assert run is not None  # noqa: S101  looked at by the caller
    case.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = environment.agent(
        case.parts.environ,
        agent_type=case.agent,
        task=task,
        run=run,
        home_id=case.parts.home_id,
        task_dir=case.parts.home.task(case.key),
        artifacts=case.artifacts,
        tmp=case.tmp,
        token=case.token,
        git=case.parts.workspaces.environment(where),
    )
    return Job(
        argv=command.argv,
        cwd=where.path,
        env={**env, **command.env},
        stdin=prompt_file if command.stdin == "prompt" else "queue" if command.stdin == "queue" else "none",
        limit=_time_left(case, task),
        max_output=case.settings.limits.max_output,
    )


def _time_left(case: Case, task: Task) -> float:
    """Seconds that a child may still run; 0: without a limit. A later child of a run has what its agent has left of its
    time: gates and people take none of it."""
    allowed = task.timeout_seconds or case.agent.timeout_seconds
    if not allowed:
        return 0.0
    spools = [case.spools / name for name in case.names() if name.endswith("-agent")]
    return max(1.0, allowed - sum(_worked(case.parts.processes.peek(spool)) for spool in spools))


def _worked(child: ChildStatus) -> float:
    """Seconds that a child of the agent has taken. One that its limit ended and that has a successor only waited."""
    if child.started_at is None or child.ended_at is None or child.ended_by == "limit":
        return 0.0
    return max(0, child.ended_at - child.started_at) / 1000
