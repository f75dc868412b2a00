"""What people read of a task beside its state: its artifacts, its agent's output, the stream of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from codefleet.app.documents import Document
from codefleet.core.errors import Failed
from codefleet.core.layout import Home
from codefleet.core.model import ACTIVITY_KINDS, TERMINAL, Activity, Fact, Run, Status, Task
from codefleet.engine import artifacts, decide, log, views
from codefleet.ports import Filter, Page, Store

FILES = {"plan": "PLAN_AND_STATUS.md", "knowledge": "KNOWLEDGE.md", "qa": "Q&A.md"}
PAGE = 1000
AT_WORK = (Status.ASSIGNED, Status.IN_PROGRESS, Status.WAITING, Status.VERIFYING)
NEAR, FAR = 1 << 16, 1 << 22
PLACE = 6
"""The low bits of an activity's number that do not count bytes."""
CHILD = 44
"""Above these bits an activity's number is that of the child that it comes from."""
FIRST_PAGE = 64
NEWS = 0.5
"""Seconds between looks at activity, which wakes nobody."""


# ------------------------------------------------------------------------------------------------------ artifacts


def file_of(home: Home, task: Task, what: str) -> str:
    """A file that the task's agents keep."""
    path = artifacts.folder(home, task.id, task.runs) / FILES[what]
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise Failed(f"task {task.id} has no {FILES[what]} yet", hint="its agent writes it while it works") from error


def result_of(task: Task, runs: Sequence[Run]) -> str:
    """The newest result that an agent has given."""
    for run in reversed(runs):
        if run.result is not None:
            return json.dumps(views.result(run.result), ensure_ascii=False, indent=2) + "\n"
    raise Failed(f"task {task.id} has no result yet", hint=f"`codefleet why {task.id}` says where it stands")


async def log_of(store: Store, key: str) -> str:
    """Our log of the task, one JSON object a line."""
    lines = [json.dumps(views.log_line(fact), ensure_ascii=False) async for fact in facts(store, task=key)]
    return "".join(f"{line}\n" for line in lines)


async def facts(store: Store, after: str = "", *, task: str = "") -> AsyncIterator[Fact]:
    """All facts behind a position, of one task or of all."""
    while page := await store.facts(after, PAGE, task=task):
        for fact in page:
            yield fact
        after = page[-1].position


# --------------------------------------------------------------------------------------------------------- events


@dataclass(slots=True)
class Stream:
    """The stream of events: facts in their order, and activity when it is asked for."""

    store: Store
    task: str = ""
    run: str = ""
    kinds: frozenset[str] = frozenset()
    """Only these; empty: all facts."""
    activity: bool = False
    """Activity too."""
    after: str = ""
    _seen: Seen = field(default_factory=dict)

    @property
    def wants_activity(self) -> bool:
        return self.activity or bool(self.kinds & ACTIVITY_KINDS)

    async def so_far(self) -> list[Document]:
        """Everything behind the position, by time. Who is interrupted in it misses nothing: the place moves last."""
        found = [fact async for fact in facts(self.store, self.after, task=self.task)]
        told, seen = [views.event(fact) for fact in found], dict(self._seen)
        if self.wants_activity:
            told = sorted([*told, *await self._activity(seen)], key=lambda one: str(one["ts"]))
        self.after = found[-1].position if found else self.after
        self._seen = seen
        return self._chosen(told)

    async def follow(self) -> AsyncIterator[Document]:
        """What is there, then what comes, for ever."""
        while True:
            for one in await self.so_far():
                yield one
            self.after = self.after or await self.store.position()
            await self.store.changed(self.after, NEWS if self.wants_activity else 60.0)

    async def skip(self) -> None:
        """Begin with what comes from now on."""
        self.after = await self.store.position()
        for run in await self._runs():
            mark(self._seen, run, await self.store.last_activity(run))

    def _chosen(self, told: Iterable[Document]) -> list[Document]:
        wanted = [one for one in told if not self.run or one["run"] == self.run]
        return [one for one in wanted if not self.kinds or one["kind"] in self.kinds]

    async def _activity(self, seen: Seen) -> list[Document]:
        return [views.telemetry(item) for run in await self._runs() async for item in fresh(self.store, run, seen)]

    async def _runs(self) -> list[str]:
        """The runs whose activity is wanted: one, those of a task, or all of which something is there."""
        if self.run:
            return [self.run]
        if self.task:
            task = (await decide.task(self.store, self.task)).value
            return [f"{task.id}.{number}" for number in range(1, task.runs + 1)]
        newest = {item.run for item in await self.store.activity("", -1, PAGE)}
        return sorted(newest | {run for run, _ in self._seen})


async def telemetry(store: Store, run: str, after: int = -1, before: int = 1 << 62) -> AsyncIterator[Activity]:
    """A run's activity between two numbers."""
    limit = FIRST_PAGE
    while page := await store.activity(run, after, limit):
        for item in page:
            if item.n >= before:
                return
            yield item
        after, limit = page[-1].n, PAGE


Seen = dict[tuple[str, int], int]
"""The newest activity that was shown of each run and child. The children of a run write at the same time, so what comes
from an earlier child may come later."""


async def fresh(store: Store, run: str, seen: Seen) -> AsyncIterator[Activity]:
    """A run's activity that was not shown yet; it counts as shown."""
    last = await store.last_activity(run)
    for child in range((last >> CHILD) + 1):
        after = seen.get((run, child), (child << CHILD) - 1)
        async for item in telemetry(store, run, after, child + 1 << CHILD):
            seen[run, child] = item.n
            yield item


def mark(seen: Seen, run: str, last: int) -> None:
    """Count a run's activity up to here as shown."""
    seen.update({(run, child): min(last, (child + 1 << CHILD) - 1) for child in range((last >> CHILD) + 1)})


# ----------------------------------------------------------------------------------------------------------- logs


async def newest(store: Store, run: str, window: int = NEAR) -> list[Activity]:
    """What a run's agent did and said lately: within so many bytes of its output, as a place is made of them."""
    last = await store.last_activity(run)
    if last < 0:
        return []
    first = max(-1, last - (window << PLACE))
    return [item async for item in telemetry(store, run, first)]


async def tail(store: Store, run: str, count: int) -> list[Document]:
    """The last so many things that a run's agent did and said."""
    for window in (NEAR, FAR, 1 << 60):
        found = [item for item in await newest(store, run, window) if item.kind != "usage"]
        if len(found) >= count:
            break
    return [views.telemetry(item) for item in found[-count:]]


async def follow_run(store: Store, key: str, seen: Seen) -> AsyncIterator[Document]:
    """What the agents of a task do and say, run after run, until the task rests."""
    resting = False
    while True:
        position = await store.position()
        task = (await decide.task(store, key)).value
        for number in range(max(1, task.runs - 1), task.runs + 1):
            async for item in fresh(store, f"{key}.{number}", seen):
                yield views.telemetry(item)
        if rests(task) and resting:
            return
        resting = rests(task)  # what was said last may be recorded behind the end: one more look
        await store.changed(position, NEWS)


def rests(task: Task) -> bool:
    """Does nothing more come of it unless a person acts?"""
    asks = task.status is Status.WAITING and task.question is not None and not task.question.live
    return task.open_run is None and (task.status in TERMINAL or task.status is Status.VERIFIED or asks)


def outputs(home: Home, run: str) -> list[Path]:
    """What the agents of a run printed, child by child."""
    return sorted(home.spools(run).glob("*-agent/out"))


def last_lines(paths: Sequence[Path], count: int) -> bytes:
    """The last lines of files read as one; all of them without a count."""
    if not count:
        return b"".join(path.read_bytes() for path in paths)
    kept: list[bytes] = []
    for path in reversed(paths):
        kept = _last(path, count - len(kept)) + kept
        if len(kept) >= count:
            break
    return b"".join(kept)


def _last(path: Path, count: int, block: int = 1 << 16) -> list[bytes]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        data = b""
        while size > 0 and data.count(b"\n") <= count:
            step = min(block, size)
            size -= step
            file.seek(size)
            data = file.read(step) + data
    return data.splitlines(keepends=True)[-count:]


async def grown(paths: list[Path], offsets: dict[Path, int]) -> bytes:
    """What was appended to files since the last look."""

    def read() -> bytes:
        return b"".join(_behind(path, offsets) for path in paths)

    return await anyio.to_thread.run_sync(read)


def _behind(path: Path, offsets: dict[Path, int]) -> bytes:
    with path.open("rb") as file:
        file.seek(offsets.get(path, 0))
        data = file.read(1 << 20)
        offsets[path] = file.tell()
    return data


def log_words(said: Document) -> str:
    """A line of the fleet's log for people."""
    return log.shown(said)


def fleet_logs(home: Home) -> list[Path]:
    """The fleet's own log files, oldest first."""
    return sorted(home.logging.glob("fleet-????-??-??.jsonl"))


async def at_work(store: Store) -> Sequence[Task]:
    """Tasks that are being worked on."""
    return (await store.find(Task, Filter(status=AT_WORK), Page(limit=50))).items
