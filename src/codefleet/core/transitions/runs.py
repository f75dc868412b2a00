"""What engines and agents do to a task, from assign to the end of its run.

Every one that speaks for a run takes the epoch it was assigned under; an old epoch changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from codefleet.core.model import (
    Evidence,
    FileChange,
    GateResult,
    Hold,
    Outcome,
    Question,
    Result,
    Run,
    RunStatus,
    Status,
    Task,
    Usage,
)
from codefleet.core.transitions.change import (
    MOST_INTERRUPTIONS,
    At,
    Change,
    fact,
    failed,
    held,
    marked,
    moot,
    move,
    own_failure,
    parked,
    persons_hold,
    requeue,
    stay,
)
from codefleet.core.transitions.table import Event, admit, refusal

NOTHING_USED = Usage()
REPORTS = frozenset({Event.REPORT_CHANGE, Event.REPORT_RESULT, Event.REPORT_NO_CHANGE})


def _mine(task: Task, event: Event, epoch: int) -> None:
    """Refuse to speak for a run that has been fenced."""
    if task.epoch != epoch:
        raise refusal(task, event, because=f"epoch {epoch} is over, {task.epoch} is in force")


def assign(task: Task, run: Run, at: At) -> Change:
    """Give a pending task to a slot. `run` is the new attempt, numbered one behind the last."""
    admit(task, Event.ASSIGN)
    if task.hold or task.blocked_by:
        raise refusal(task, Event.ASSIGN, because=task.hold.text if task.hold else "a dependency is open")
    earlier = (task.run,) if task.run and not task.run.ended else ()
    epoch = task.epoch + 1
    after = move(
        task,
        Event.ASSIGN,
        Status.ASSIGNED,
        at,
        epoch=epoch,
        runs=run.number,
        run=replace(run, epoch=epoch),
        lingering=task.lingering + earlier,
        assigned_to=run.agent_id,
        assigned_at=at.now,
        branch_name=task.branch_name or run.branch,
    )
    return Change(after, (fact(after, "task_assigned", at, run=run, agent_id=run.agent_id, agent=run.agent),))


def decline(task: Task, epoch: int, hold: Hold, at: At) -> Change:
    """The slot can not start it after all: back with a hold that says why. Nothing has run."""
    admit(task, Event.DECLINE)
    _mine(task, Event.DECLINE, epoch)
    after = move(task, Event.DECLINE, Status.PENDING, at, hold=hold, run=None, assigned_to=None)
    shown = {"kind": hold.kind, "text": hold.text, "until": hold.until, "on": hold.on}
    return Change(after, (fact(after, "task_declined", at, run=task.run, hold=shown), held(after, hold, at)))


def start(task: Task, epoch: int, at: At, *, pid: int, **about: Any) -> Change:
    """The agent's process runs. `about`: what else is known of the run by now (workspace, branch, base, session)."""
    admit(task, Event.START)
    _mine(task, Event.START, epoch)
    run = _run(task)
    if run.ended:
        raise refusal(task, Event.START, because=f"run {run.id} is over")
    run = replace(run, status=RunStatus.RUNNING, started_at=at.now, **about)
    after = move(
        task,
        Event.START,
        Status.IN_PROGRESS,
        at,
        run=run,
        started_at=task.started_at or at.now,
        branch_name=run.branch or task.branch_name,
    )
    data = {"pid": pid, "workspace": run.workspace, "branch": run.branch, "base": run.base}
    return Change(after, (fact(after, "task_started", at, run=run, **data),))


def adopt(task: Task, number: int, engine: str, at: At) -> Change:
    """Another engine looks after this run from now on; its agent never noticed."""
    if task.run and task.run.number == number:
        return Change(replace(task, run=replace(task.run, engine=engine), updated_at=at.now))
    rest = tuple(replace(run, engine=engine) if run.number == number else run for run in task.lingering)
    return Change(replace(task, lingering=rest, updated_at=at.now))


def learn(task: Task, epoch: int, at: At, **about: Any) -> Change:
    """Note something about the live run (its workspace, session, usage) that is no event."""
    if task.run is None or task.epoch != epoch:
        return Change(task)
    return Change(replace(task, run=replace(task.run, **about), updated_at=at.now))


MOST_NOTES = 20


def note(task: Task, text: str, at: At) -> Change:
    """Remember something for the next run; the oldest notes make room."""
    return Change(replace(task, notes=(*task.notes, text)[-MOST_NOTES:], updated_at=at.now))


def ask(
    task: Task, epoch: int, text: str, at: At, *, options: tuple[str, ...] = (), live: bool, request: int = 0
) -> Change:
    """The agent waits for a person: alive, or parked because its turn has ended."""
    event = Event.ASK_LIVE if live else Event.ASK_PARKED
    admit(task, event)
    _mine(task, event, epoch)
    if live and (task.run is None or task.run.ended):
        raise refusal(task, event, because="no process of it lives")
    run = task.run if live else marked(task.run, Outcome.QUESTION, "it asked a question")
    if task.status is Status.WAITING and task.question and task.question.open:
        return Change(stay(task, event, at, run=run, question=replace(task.question, live=False)))
    number = task.questions + 1
    question = Question(
        id=f"q_{task.id}.{number}",
        text=text,
        asked_at=at.now,
        options=options,
        live=live,
        run=run.id if run else None,
        request=request,
    )
    after = move(task, event, Status.WAITING, at, run=run, question=question, questions=number)
    return Change(after, (_waiting(after, question, at),))


def _waiting(task: Task, question: Question, at: At) -> Any:
    return fact(task, "task_waiting", at, run=task.run, question=question.id, text=question.text, live=question.live)


def park(task: Task, at: At) -> Change:
    """A live question has waited long enough: its process may go, its session stays."""
    admit(task, Event.PARK)
    if not task.question or not task.question.live:
        raise refusal(task, Event.PARK, because="its question is parked already")
    question = replace(task.question, live=False)
    run = marked(task.run, Outcome.QUESTION, "nobody answered while it waited")
    after = stay(task, Event.PARK, at, question=question, run=run)
    return Change(after, (_waiting(after, question, at),))


def report(
    task: Task,
    epoch: int,
    event: Event,
    at: At,
    *,
    head: str = "",
    files: tuple[FileChange, ...] = (),
    result: Result | None = None,
) -> Change:
    """What the agent brought. Under an old epoch, or where nobody waits for it, it is kept as salvage."""
    cell = admit(task, event)
    if task.epoch != epoch or not cell.targets or (cell.keeps and not _asks_live(task)):
        return keep(task, at)
    run = _reported(task.run, event, result)
    run = replace(run, head=head, files=files, result=result) if run else run
    after = move(
        task,
        event,
        Status.VERIFYING,
        at,
        run=run,
        question=moot(task),
        hold=persons_hold(task),
        result_summary=result.summary if result else task.result_summary,
        outcome="no_change" if event is Event.REPORT_NO_CHANGE else None,
    )
    data = {
        "head": head,
        "files": len(files),
        "added": sum(one.lines_added for one in files),
        "removed": sum(one.lines_removed for one in files),
        "result": result.status if result else None,
    }
    return Change(after, (fact(after, "run_reported", at, run=run, **data),))


def _asks_live(task: Task) -> bool:
    return task.question is not None and task.question.open and task.question.live


def _reported(run: Run | None, event: Event, result: Result | None) -> Run | None:
    """The run with its outcome; a result that comes after its question was parked answers that too."""
    asked = run is not None and run.outcome is Outcome.QUESTION and not run.ended
    before = replace(run, outcome=None) if run and asked else run
    outcome = Outcome.NO_CHANGE if event is Event.REPORT_NO_CHANGE else Outcome.REPORTED
    return marked(before, outcome, result.summary if result else "")


def report_nothing(task: Task, epoch: int, reason: str, at: At, *, most: int) -> Change:
    """The run ended well and brought nothing where a change was expected: that is an attempt used up."""
    cell = admit(task, Event.REPORT_NOTHING)
    if task.epoch != epoch or not cell.targets:
        return keep(task, at)
    run = marked(task.run, Outcome.OWN_ERROR, reason)
    return own_failure(task, Event.REPORT_NOTHING, at, reason, most, run=run)


def keep(task: Task, at: At, ref: str = "") -> Change:
    """A report that comes too late is never applied and never thrown away."""
    return Change(task, (fact(task, "report_kept", at, ref=ref),), kept=True)


def fail(task: Task, epoch: int, outcome: Outcome, reason: str, at: At, *, most: int) -> Change:
    """The run ended without a result by the task's own fault; `most` attempts are allowed."""
    event = _OWN.get(outcome, Event.OWN_ERROR)
    cell = admit(task, event)
    _mine(task, event, epoch)
    if task.status in cell.targets:
        return _over(task, event, outcome, reason, at)
    return own_failure(task, event, at, reason, most, run=marked(task.run, outcome, reason), question=moot(task))


_OWN = {Outcome.TIMEOUT: Event.LIMIT_TIME}


def _over(task: Task, event: Event, outcome: Outcome, reason: str, at: At) -> Change:
    """The agent's process is over and the task stays as it is: a question is parked, all else goes on without it."""
    if task.status is not Status.WAITING:
        return Change(task)
    return Change(stay(task, event, at, run=marked(task.run, outcome, reason), question=parked(task)))


def fail_driver(task: Task, epoch: int, outcome: Outcome, reason: str, at: At, *, hold: Hold | None = None) -> Change:
    """Its driver or account failed: no attempt is used; the pause of the agent type is the caller's."""
    admit(task, Event.DRIVER_ERROR)
    _mine(task, Event.DRIVER_ERROR, epoch)
    if task.status in {Status.ASSIGNED, Status.IN_PROGRESS}:
        return requeue(task, Event.DRIVER_ERROR, at, why=reason, hold=hold, run=marked(task.run, outcome, reason))
    return _over(task, Event.DRIVER_ERROR, outcome, reason, at)


def run_out_of_context(task: Task, epoch: int, at: At, *, pct: int = 100) -> Change:
    """Its session is full: go on in a new one, at no attempt's cost."""
    admit(task, Event.LIMIT_CONTEXT)
    _mine(task, Event.LIMIT_CONTEXT, epoch)
    reason = "the context of its session is used up"
    if task.status is not Status.IN_PROGRESS:
        return _over(task, Event.LIMIT_CONTEXT, Outcome.CONTEXT, reason, at)
    run = marked(task.run, Outcome.CONTEXT, reason)
    full = fact(task, "context_pressure", at, run=run, pct=pct)
    change = requeue(task, Event.LIMIT_CONTEXT, at, why="context used up", run=run)
    return Change(change.task, (full, *change.facts))


def run_out_of_budget(task: Task, epoch: int, text: str, at: At) -> Change:
    """Money is spent: a person decides how it goes on."""
    admit(task, Event.LIMIT_BUDGET)
    _mine(task, Event.LIMIT_BUDGET, epoch)
    if task.status is not Status.IN_PROGRESS:
        return _over(task, Event.LIMIT_BUDGET, Outcome.BUDGET, text, at)
    number = task.questions + 1
    question = Question(id=f"q_{task.id}.{number}", text=text, asked_at=at.now, run=task.run.id if task.run else None)
    run = marked(task.run, Outcome.BUDGET, text)
    after = move(task, Event.LIMIT_BUDGET, Status.WAITING, at, run=run, question=question, questions=number)
    return Change(after, (_waiting(after, question, at),))


def interrupt(task: Task, epoch: int, why: str, at: At, *, explained: bool) -> Change:
    """Its engine or host went away, or stops. No attempt is used; five unexplained deaths in a row end it."""
    admit(task, Event.INTERRUPT)
    if task.epoch != epoch:
        return Change(task)
    if task.status not in {Status.ASSIGNED, Status.IN_PROGRESS}:
        return _over(task, Event.INTERRUPT, Outcome.INTERRUPTED, why, at)
    run = marked(task.run, Outcome.INTERRUPTED, why)
    count = task.interruptions if explained else task.interruptions + 1
    if count >= MOST_INTERRUPTIONS:
        return failed(task, Event.INTERRUPT, at, "it kills its runner", run=run, interruptions=count)
    return requeue(task, Event.INTERRUPT, at, why=why, run=run, interruptions=count)


def pass_gates(task: Task, epoch: int, evidence: Evidence, at: At, *, proven: bool, awaiting: str | None) -> Change:
    """The gates are green on its tree (or there are none: `proven` is false)."""
    admit(task, Event.GATES_GREEN)
    _mine(task, Event.GATES_GREEN, epoch)
    after = move(
        task,
        Event.GATES_GREEN,
        Status.VERIFIED,
        at,
        evidence=evidence,
        proven=proven,
        awaiting=awaiting,
        hold=persons_hold(task),
        interruptions=0,
    )
    data = {"tree": evidence.tree, "proven": proven, "awaiting": awaiting}
    return Change(after, (fact(after, "task_verified", at, run=task.run, **data),))


def fail_gates(task: Task, epoch: int, gate: GateResult, log: str, at: At, *, most: int) -> Change:
    """A gate is red: back to the same run while rounds are left, else failed. Never an attempt."""
    admit(task, Event.GATES_RED)
    _mine(task, Event.GATES_RED, epoch)
    said = fact(task, "gates_failed", at, run=task.run, gate=gate.name, exit_code=gate.exit_code, log=log)
    if task.rounds < most and task.run and not task.run.ended:
        run = replace(task.run, round=task.run.round + 1, outcome=None, reason="", result=None)
        after = move(
            task, Event.GATES_RED, Status.IN_PROGRESS, at, rounds=task.rounds + 1, run=run, evidence=None, outcome=None
        )
        return Change(after, (said,))
    reason = f"gate {gate.name} is red" + (f" after {task.rounds} rounds" if task.rounds else "")
    run_ = replace(task.run, outcome=Outcome.GATES_RED, reason=reason) if task.run and not task.run.ended else task.run
    change = failed(task, Event.GATES_RED, at, reason, run=run_)
    return Change(change.task, (said, *change.facts))


def hold_gates(task: Task, epoch: int, text: str, at: At) -> Change:
    """Its gates can not run: nobody is blamed; a retry, a changed gate or a new engine tries again."""
    admit(task, Event.GATES_STUCK)
    _mine(task, Event.GATES_STUCK, epoch)
    hold = Hold(kind="gates", text=text)
    after = stay(task, Event.GATES_STUCK, at, hold=hold)
    return Change(after, (held(after, hold, at),))


def lift_gates(task: Task, at: At) -> Change:
    """Gates that could not run may be tried again."""
    if task.hold is None or task.hold.kind != "gates":
        return Change(task)
    after = replace(task, hold=None, updated_at=at.now)
    return Change(after, (fact(after, "task_released", at, kind="gates"),))


def closed(
    run: Run,
    at: At,
    *,
    exit_code: int | None,
    usage: Usage = NOTHING_USED,
    cost_usd: float | None = None,
    **about: Any,
) -> Run:
    """The run as it is recorded once its process tree is dead."""
    return replace(
        run,
        status=RunStatus.ENDED,
        ended_at=at.now,
        exit_code=exit_code,
        exit_known=exit_code is not None,
        usage=usage,
        cost_usd=cost_usd,
        outcome=run.outcome or Outcome.OWN_ERROR,
        reason=run.reason or ("" if run.outcome else "its process ended without a report"),
        **about,
    )


def end_run(
    task: Task,
    number: int,
    at: At,
    *,
    exit_code: int | None,
    usage: Usage = NOTHING_USED,
    cost_usd: float | None = None,
    most: int = 3,
    **about: Any,
) -> Change:
    """The process tree of a run is confirmed dead: its workspace is free. `most`: attempts allowed. `about`: what else
    is known of the run by now."""
    cell = admit(task, Event.RUN_ENDED)
    run = _numbered(task, number)
    if run is None or run.ended:
        return Change(task)
    run = closed(run, at, exit_code=exit_code, usage=usage, cost_usd=cost_usd, **about)
    said = fact(
        task,
        "run_ended",
        at,
        run=run,
        outcome=str(run.outcome),
        reason=run.reason,
        exit_code=exit_code,
        exit_known=run.exit_known,
        usage={"input": usage.input, "output": usage.output, "cached": usage.cached},
        cost_usd=cost_usd,
        duration_ms=at.now - (run.started_at or run.created_at),
    )
    after = _without(task, run, at)
    if task.status is Status.WAITING and task.run and task.run.number == number:
        after = replace(after, question=parked(task))
    if task.status is Status.IN_PROGRESS and task.run and task.run.number == number:
        lost = own_failure(after, Event.RUN_ENDED, at, run.reason, most)
        return Change(lost.task, (said, *lost.facts))
    if task.status not in cell.targets:  # pragma: no cover - the table accepts an end everywhere
        raise refusal(task, Event.RUN_ENDED)
    return Change(after, (said,))


def _without(task: Task, run: Run, at: At) -> Task:
    """The task after one of its runs is over, its totals with it."""
    total = Usage(
        input=task.usage.input + run.usage.input,
        output=task.usage.output + run.usage.output,
        cached=task.usage.cached + run.usage.cached,
    )
    cost = task.cost_usd if run.cost_usd is None else (task.cost_usd or 0.0) + run.cost_usd
    return replace(
        task,
        run=run if task.run and task.run.number == run.number else task.run,
        lingering=tuple(one for one in task.lingering if one.number != run.number),
        usage=total,
        cost_usd=cost,
        updated_at=at.now,
    )


def _numbered(task: Task, number: int) -> Run | None:
    known = (*task.lingering, *((task.run,) if task.run else ()))
    return next((run for run in known if run.number == number), None)


def _run(task: Task) -> Run:
    if task.run is None:  # pragma: no cover - an assigned task has a run
        raise AssertionError(f"task {task.id} is {task.status} without a run")
    return task.run
