"""What the whole fleet is doing, and what stands around one task."""

from __future__ import annotations

from collections.abc import Sequence

from codefleet.app import documents, why
from codefleet.app.documents import Document
from codefleet.app.why import Scene
from codefleet.core.model import TERMINAL, Agent, Engine, Instant, Pause, Status, Task
from codefleet.ports import Filter, Page, Store

MOST = 500
SILENT = 120
TAIL = 300


async def status(store: Store, now: Instant, stale_after: float = SILENT) -> Document:
    """The document of `status`."""
    agents = (await store.find(Agent, Filter(), Page(limit=MOST))).items
    asking = (await store.find(Task, Filter(open_question=True), Page(limit=MOST))).items
    judged = (await store.find(Task, Filter(awaiting=True), Page(limit=MOST))).items
    paused = (await store.find(Pause, Filter(), Page(limit=MOST))).items
    engines = await beating(store, now, stale_after)
    return documents.status(await store.counts(), engines, agents, paused, [*asking, *judged], now)


async def beating(store: Store, now: Instant, stale_after: float) -> Sequence[Engine]:
    """The engines that were heard of lately."""
    return [one for one in await store.engines() if now - one.beat_at <= stale_after * 1000]


async def pauses(store: Store, now: Instant) -> Sequence[Pause]:
    """Those in force."""
    found = (await store.find(Pause, Filter(), Page(limit=MOST))).items
    return [one for one in found if one.active and (one.until is None or one.until > now)]


async def questions(store: Store) -> list[Document]:
    tasks = (await store.find(Task, Filter(open_question=True), Page(limit=MOST))).items
    paused = (await store.find(Pause, Filter(open_question=True), Page(limit=MOST))).items
    return documents.questions(tasks, paused)


async def scene(store: Store, task: Task, now: Instant, stale_after: float) -> Scene:
    upstream = {held.value.id: held.value for held in await store.get(Task, task.depends_on)}
    waiting = task.status is Status.PENDING and not task.hold
    before = await store.ready([], MOST) if waiting else ()
    return Scene(
        now=now,
        engines=await beating(store, now, stale_after) if task.status not in TERMINAL else (),
        pauses=await pauses(store, now) if waiting else (),
        upstream=upstream,
        ahead=list(before).index(task.id) if task.id in before else len(before),
    )


def explained(task: Task, around: Scene) -> Document:
    return {
        "task_id": task.id,
        "title": task.title,
        "status": task.status.value,
        "reasons": why.reasons(task, around),
    }


async def idle(store: Store, now: Instant, stale_after: float) -> Document:
    """Why nothing runs, or what does."""
    counts = await store.counts()
    ready = await store.ready([], MOST)
    engines = await beating(store, now, stale_after)
    around = Scene(now=now, engines=engines, pauses=await pauses(store, now), ahead=len(ready))
    return {"task_id": None, "title": None, "status": None, "reasons": why.idle(counts, around)}


async def live(store: Store, task: Task, now: Instant) -> Document | None:
    """What the run of a task is doing: how long, how lately, with how full a context."""
    run = task.open_run
    if run is None:
        return None
    last = await store.last_activity(run.id)
    tail = await store.activity(run.id, max(-1, last - TAIL), TAIL) if last >= 0 else ()
    pressure = [one.data["context_pct"] for one in tail if one.kind == "usage" and one.data.get("context_pct")]
    began = run.started_at or run.created_at
    return {
        "elapsed_ms": now - began if began else None,
        "idle_ms": now - tail[-1].at if tail else None,
        "context_pct": max(pressure, default=None),
        "events": last + 1,
        "agent": run.agent,
        "agent_inherited": not task.agent,
        "model": run.model or None,
        "model_inherited": not task.model,
    }
