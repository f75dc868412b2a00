"""What a person means by a TARGET: an id, a name, a branch, or a unique beginning of an id or branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from codefleet.core.errors import Ambiguous, NotFound
from codefleet.core.model import Agent, Pause, Run, Task
from codefleet.ports import Filter, Page, Store

QUESTION = "q_"
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Target:
    """One thing: its kind (task, run, agent or pause) and its id. `task` is the task that it is about, if any."""

    kind: str
    id: str
    task: str = ""


async def resolve(store: Store, text: str) -> Target:
    """The one thing that a text names; `Ambiguous` with the list, or `NotFound`."""
    for look in (_exact, _by_name, _by_beginning, _by_branch):
        found = await look(store, text) if text else []
        if len(found) > 1:
            names = ", ".join(sorted(one.id for one in found)[:MOST_SHOWN])
            raise Ambiguous(f"{text} names several things", hint=f"one of: {names}")
        if found:
            return found[0]
    raise NotFound(f"there is nothing called {text!r}", hint="`codefleet tasks --all` lists the tasks")


async def _exact(store: Store, text: str) -> list[Target]:
    if text.startswith(QUESTION):
        return await _question(store, text)
    tasks = [_task(held.value) for held in await store.get(Task, [text])]
    return tasks or await _run(store, text)


async def _question(store: Store, text: str) -> list[Target]:
    """`q_<task>.<k>`, or `q_<task>` for its open one; `q_<selector>` of a pause."""
    name = text.removeprefix(QUESTION)
    pauses = await store.get(Pause, [name])
    if pauses:
        return [Target("pause", name)]
    tasks = await store.get(Task, [name, name.rpartition(".")[0]])
    return [_task(held.value) for held in tasks if _asks(held.value, text)]


def _asks(task: Task, question: str) -> bool:
    asked = task.question
    return asked is not None and (asked.id == question or (asked.open and question == f"{QUESTION}{task.id}"))


async def _run(store: Store, text: str) -> list[Target]:
    """A closed run, or the one that its task still holds."""
    task, _, number = text.rpartition(".")
    if not task or not number.isdecimal():
        return []
    closed = await store.get(Run, [text])
    if closed:
        return [Target("run", text, task)]
    owners = [held.value for held in await store.get(Task, [task])]
    return [Target("run", text, task) for owner in owners if text in {run.id for run in _runs(owner)}]


def _runs(task: Task) -> Iterable[Run]:
    return (*task.lingering, *((task.run,) if task.run else ()))


async def _by_name(store: Store, text: str) -> list[Target]:
    """An agent of that name, or the tasks of exactly that branch."""
    agents = [
        Target("agent", held.value.id, held.value.current_task_id or "") for held in await store.get(Agent, [text])
    ]
    if agents or "/" not in text:
        return agents
    return await _of_branch(store, lambda branch: branch == text)


async def _by_beginning(store: Store, text: str) -> list[Target]:
    """Tasks first; runs when the text has a dot."""
    text = text.removeprefix(QUESTION)
    tasks = [] if "." in text else (await store.find(Task, Filter(prefix=text), Page(limit=MOST_SHOWN))).items
    if tasks:
        return [_task(one) for one in tasks]
    agents = (await store.find(Agent, Filter(prefix=text), Page(limit=MOST_SHOWN))).items
    return [Target("agent", one.id, one.current_task_id or "") for one in agents] or await _runs_of(store, text)


async def _runs_of(store: Store, text: str) -> list[Target]:
    """A run by its number and the beginning of its task's id."""
    beginning, _, number = text.rpartition(".")
    owners = (await store.find(Task, Filter(prefix=beginning), Page(limit=MOST_SHOWN))).items if beginning else ()
    return [found for owner in owners for found in await _run(store, f"{owner.id}.{number}")]


async def _by_branch(store: Store, text: str) -> list[Target]:
    return await _of_branch(store, lambda branch: branch.startswith(text)) if text else []


async def _of_branch(store: Store, wanted: Callable[[str], bool]) -> list[Target]:
    """Branches are in no index: this reads every task, and only for names that nothing else has."""
    found: list[Target] = []
    page = Page(limit=500)
    while len(found) < MOST_SHOWN:
        paged = await store.find(Task, Filter(), page)
        found += [_task(one) for one in paged.items if one.branch_name and wanted(one.branch_name)]
        if not paged.after:
            break
        page = Page(limit=500, after=paged.after)
    return found


def _task(task: Task) -> Target:
    return Target("task", task.id, task.id)
