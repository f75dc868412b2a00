"""Why a task is where it is, and what would move it on: the rule that holds it, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codefleet.app.documents import Document, moment
from codefleet.core.model import Engine, Instant, Pause, Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is known around a task at a moment."""

    engines: Sequence[Engine] = ()
    """Those that live."""
    pauses: Sequence[Pause] = ()
    """Those in force."""
    stopped_by: frozenset[str] = frozenset()
    """The selectors that would stop this task."""
    upstream: Mapping[str, Task] = field(default_factory=dict)
    ahead: int = 0
    """How many ready tasks are before it."""


def reasons(task: Task, scene: Scene) -> list[Document]:
    """Each rule that holds the task, or the one that will move it next; the strongest first."""
    found = [*_upstream(task, scene), *_hold(task), *_pauses(task, scene), *_state(task, scene)]
    return found or [_reason("none", f"it is {task.status.value.replace('_', ' ')}", "")]


def _reason(rule: str, text: str, lifts: str, *, until: Instant | None = None, on: str | None = None) -> Document:
    return {"rule": rule, "text": text, "lifts": lifts or None, "until": moment(until), "on": on}


def _upstream(task: Task, scene: Scene) -> list[Document]:
    if task.status is not Status.BLOCKED:
        return []
    return [_waits_for(key, scene.upstream.get(key)) for key in task.blocked_by]


def _waits_for(key: str, upstream: Task | None) -> Document:
    if upstream is None:
        text = f"it depends on {key}, which is not there"
        return _reason("dependency", text, f"codefleet edit --depends-on without {key}", on=key)
    text = f"it depends on {key} ({upstream.title}), which is {upstream.status.value.replace('_', ' ')}"
    again = upstream.status in {Status.FAILED, Status.CANCELLED}
    return _reason("dependency", text, f"codefleet retry {key}" if again else f"{key} is completed", on=key)


LIFTS = {
    "time": "time: it goes on by itself",
    "scope": "the task that holds these files ends",
    "limit": "the limit is free again",
    "conflict": "the conflict is resolved",
    "person": "codefleet edit {id} --unhold",
    "upstream": "codefleet retry {on}",
    "trust": "codefleet trust",
    "setup": "the setup works again; codefleet retry {id}",
    "gates": "codefleet retry {id}, a changed gate or a new engine",
}


def _hold(task: Task) -> list[Document]:
    hold = task.hold
    if hold is None:
        return []
    lifts = LIFTS.get(hold.kind, "").format(id=task.id, on=hold.on or "")
    return [_reason(hold.kind, hold.text, lifts, until=hold.until, on=hold.on)]


def _pauses(task: Task, scene: Scene) -> list[Document]:
    if task.status is not Status.PENDING:
        return []
    return [_paused(pause) for pause in scene.pauses if pause.id in scene.stopped_by]


def _paused(pause: Pause) -> Document:
    text = f"{pause.id} is paused: {pause.reason}"
    return _reason("pause", text, f"codefleet resume {pause.id}", until=pause.until, on=pause.id)


def _state(task: Task, scene: Scene) -> list[Document]:
    if task.status is Status.PENDING:
        return _pending(task, scene)
    if task.status is Status.WAITING and task.question:
        text = f"its agent asks: {task.question.text}"
        return [_reason("question", text, f"codefleet answer {task.id} TEXT", on=task.question.id)]
    if task.status is Status.VERIFIED:
        text = f"it is {'proven' if task.proven else 'unproven'} and awaits {task.awaiting or 'its policy'}"
        return [_reason(task.awaiting or "policy", text, f"codefleet review {task.id} --approve")]
    if task.status is Status.FAILED:
        return [_reason("failed", task.error_message or "it has failed", f"codefleet retry {task.id}")]
    if task.status is Status.CANCELLED:
        return [_reason("cancelled", task.error_message or "it was cancelled", f"codefleet retry {task.id}")]
    return _orphan(task, scene) or _at_work(task)


def _pending(task: Task, scene: Scene) -> list[Document]:
    if task.hold:
        return []
    if not scene.engines:
        return [_reason("no_engine", "no engine runs, so nobody can take it", "codefleet start")]
    free = sum(max(0, engine.slots - engine.busy) for engine in scene.engines if not engine.draining)
    if not free:
        return [_reason("slots", "every runner is busy", "one of them is free again")]
    return [_reason("turn", f"{scene.ahead} ready tasks are before it", "its turn comes")]


def _orphan(task: Task, scene: Scene) -> list[Document]:
    """A run whose engine has ended is in nobody's care until another adopts it."""
    run = task.open_run
    if run is None or run.engine in {engine.id for engine in scene.engines}:
        return []
    return [_reason("no_engine", f"{task.assigned_to} began it, and its engine has ended", "codefleet start adopts it")]


def _at_work(task: Task) -> list[Document]:
    who = task.assigned_to or "nobody"
    texts = {
        Status.ASSIGNED: f"{who} prepares its workspace",
        Status.IN_PROGRESS: f"{who} works on it",
        Status.VERIFYING: "its gates run",
        Status.LANDING: "it lands",
        Status.COMPLETED: f"it is completed ({task.outcome or 'done'}, {'proven' if task.proven else 'unproven'})",
    }
    text = texts.get(task.status)
    return [_reason("progress", text, "")] if text else []


def idle(counts: Mapping[Status, int], scene: Scene, held: Sequence[Task]) -> list[Document]:
    """Why nothing is started: the fleet as a whole. `held`: the pending tasks that may not start."""
    found = [_paused(one) for one in scene.pauses]
    busy = sum(engine.busy for engine in scene.engines)
    if busy:
        found.append(_reason("progress", f"{_many(busy, 'runner')} at work, {_many(scene.ahead, 'task')} ready", ""))
    if not scene.engines:
        found.append(_reason("no_engine", "no engine runs", "codefleet start"))
    if not scene.ahead and not busy:
        found.append(_reason("nothing_ready", _nothing_ready(counts), _what_may_be_done(counts)))
    found += [_held(tasks) for tasks in _alike(held)]
    return found or [_reason("progress", f"{_many(scene.ahead, 'task')} ready, to be taken at any moment", "")]


def _many(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number} {what}s are"


OPEN = (
    *(Status.PENDING, Status.BLOCKED, Status.WAITING, Status.ASSIGNED, Status.IN_PROGRESS),
    *(Status.VERIFYING, Status.VERIFIED),
)


def _alike(tasks: Sequence[Task]) -> list[list[Task]]:
    """Those that wait for the same."""
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        if task.hold:
            groups.setdefault((task.hold.kind, task.hold.text), []).append(task)
    return list(groups.values())


def _held(tasks: Sequence[Task]) -> Document:
    names = ", ".join(task.id for task in tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
    [reason] = _hold(tasks[0])
    return reason | {"text": f"{names}: {reason['text']}"}


def _what_may_be_done(counts: Mapping[Status, int]) -> str:
    if counts.get(Status.VERIFIED):
        return "codefleet review"
    return "" if any(counts.get(status) for status in OPEN) else 'codefleet add "…"'


def _nothing_ready(counts: Mapping[Status, int]) -> str:
    names = {Status.PENDING: "held", Status.VERIFIED: "to be judged"}
    found = [
        f"{counts[status]} {names.get(status, status.value.replace('_', ' '))}" for status in OPEN if counts.get(status)
    ]
    return f"no task is ready ({', '.join(found)})" if found else "the backlog is empty"
