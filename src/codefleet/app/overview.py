"""What the whole fleet is doing, and what stands around one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codefleet.app import documents, reading, stored, why
from codefleet.app.documents import Document
from codefleet.app.why import Scene
from codefleet.core.model import TERMINAL, Activity, Agent, Engine, Instant, Pause, Status, Task
from codefleet.core.settings import Settings
from codefleet.ports import Filter, Page, Store

MOST = 500
LOOKED_AT = tuple(Status(name) for name in stored.LOOKED_AT)


@dataclass(frozen=True, slots=True)
class Lookout:
    """The fleet as it is at a moment. It only reads."""

    store: Store
    now: Instant
    silent: float
    """Seconds without a beat after which an engine of another host counts as gone."""
    alive: Callable[[Engine], bool]
    """Does this engine live, as far as its host can tell?"""

    # ---------------------------------------------------------------------------------------------- the fleet

    async def status(self) -> Document:
        agents = (await self.store.find(Agent, Filter(), Page(limit=MOST))).items
        tally = await self.store.counts()
        tasks = [*await self.tasks(), *await self._held()]
        return documents.status(tally, await self.engines(), agents, await self.pauses(), tasks, self.now)

    async def member(self, agent: Agent) -> Document:
        """One agent as it is now."""
        return documents.member(agent, await self.engines(), await self.tasks(), await self.pauses())

    async def engines(self) -> Sequence[Engine]:
        """Those that live."""
        found = await self.store.engines()
        return [one for one in found if self.now - one.beat_at <= self.silent * 1000 and self.alive(one)]

    async def _workers(self) -> Sequence[Engine]:
        """Engines that live, each with what it works on now: its beat may be older."""
        at_work = Counter(task.open_run.engine for task in await self.tasks() if task.open_run)
        return [replace(one, busy=at_work[one.id]) for one in await self.engines()]

    async def tasks(self) -> Sequence[Task]:
        """Those that somebody works on or must judge."""
        return (await self.store.find(Task, Filter(status=LOOKED_AT), Page(limit=MOST))).items

    async def _held(self) -> Sequence[Task]:
        """Pending tasks that may not start."""
        found = (await self.store.find(Task, Filter(status=(Status.PENDING,)), Page(limit=MOST))).items
        return [task for task in found if task.hold]

    async def pauses(self) -> Sequence[Pause]:
        """Those in force."""
        found = (await self.store.find(Pause, Filter(), Page(limit=MOST))).items
        return [one for one in found if one.active and (one.until is None or one.until > self.now)]

    async def questions(self) -> list[Document]:
        tasks = (await self.store.find(Task, Filter(open_question=True), Page(limit=MOST))).items
        return documents.questions(tasks, await self.pauses())

    # --------------------------------------------------------------------------------------------------- why

    async def why(self, task: Task, settings: Settings) -> Document:
        """What holds a task, or what it is about."""
        reasons = why.reasons(task, await self._scene(task, settings))
        return {"task_id": task.id, "title": task.title, "status": task.status.value, "reasons": reasons}

    async def _scene(self, task: Task, settings: Settings) -> Scene:
        ready = task.status is Status.PENDING and not task.hold
        before = list(await self.store.ready([], MOST)) if ready else []
        name = task.agent or settings.agent.default
        account = settings.agents[name].account if name in settings.agents else ""
        return Scene(
            engines=await self._workers() if task.status not in TERMINAL else (),
            pauses=await self.pauses() if ready else (),
            stopped_by=frozenset(
                {"fleet", f"agent:{name}", f"account:{account or name}", f"project:{task.project}", f"task:{task.id}"}
            ),
            upstream={held.value.id: held.value for held in await self.store.get(Task, task.depends_on)},
            ahead=before.index(task.id) if task.id in before else len(before),
        )

    async def idle(self) -> Document:
        """Why nothing runs, or what does."""
        around = Scene(
            engines=await self._workers(), pauses=await self.pauses(), ahead=len(await self.store.ready([], MOST))
        )
        reasons = why.idle(await self.store.counts(), around, await self._held())
        return {"task_id": None, "title": None, "status": None, "reasons": reasons}

    # -------------------------------------------------------------------------------------------------- live

    async def live(self, task: Task, *, counted: bool) -> Document | None:
        """What the run of a task is doing: how long, how lately, with how full a context. Counting reads all of it."""
        run = task.open_run
        if run is None:
            return None
        tail = await reading.newest(self.store, run.id, 1 << 60 if counted else reading.NEAR)
        pressure = [one.data["context_pct"] for one in tail if one.kind == "usage" and one.data.get("context_pct")]
        began = run.started_at or run.created_at
        return {
            "elapsed_ms": self.now - began if began else None,
            "idle_ms": max(0, self.now - tail[-1].at) if tail else None,
            "context_pct": max(pressure, default=None),
            "events": len(tail) if counted else None,
            "does": next((said for one in reversed(tail) if (said := _doing(one))), None),
            "agent": run.agent,
            "agent_inherited": not task.agent,
            "model": run.model or None,
            "model_inherited": not task.model,
        }


def _doing(one: Activity) -> str:
    """In a few words what an agent did last."""
    data = one.data
    words = {
        "tool_call": f"{data['name']} {_plain(data.get('input'))}" if data.get("name") else "",
        "file_changed": f"changed {data.get('path')}",
        "message": str(data.get("text", "")),
        "gate_output": f"gate {data.get('command') or ''}",
        "setup_output": f"setup {data.get('command') or ''}",
        "permission_denied": f"denied: {data.get('tool')}",
    }
    return " ".join(words.get(one.kind, "").split())[:200]


def _plain(value: object) -> str:
    """What a tool was given, as a person would write it."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(str(one) for one in value.values())
    return str(value or "")
