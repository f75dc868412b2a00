"""Whatever is done to both stores, they say the same: the one that forgets is a verified fake."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from codefleet.core.errors import CodeFleetError
from codefleet.core.model import Activity, Aggregate, Engine, Hold, Lane, Pause, Question, Run, Status, Task
from codefleet.ports import Filter, Held, Page, Store, SystemClock
from codefleet.stores.memory import MemoryStore
from codefleet.stores.sqlite import Options
from codefleet.testing.stores import embedded, engine, fact, run, task

T = TypeVar("T")

KEYS = st.sampled_from(["t1", "t2", "t3", "t4", "t5"])
WHO = st.sampled_from(["e1", "e2"])
PROJECTS = st.sampled_from(["p", "q"])
TIMES = st.integers(0, 20)

runs = st.builds(run, KEYS, st.integers(1, 3), engine=WHO, project=PROJECTS, ended_at=st.none() | TIMES)
questions = st.builds(
    Question, id=st.just("q"), text=st.just("?"), asked_at=TIMES, live=st.booleans(), answer=st.none() | st.just("yes")
)
holds = st.builds(Hold, kind=st.just("time"), text=st.just(""), until=st.none() | TIMES, on=st.none() | KEYS)
changes = st.fixed_dictionaries(
    {},
    optional={
        "title": st.text(max_size=5),
        "project": PROJECTS,
        "agent": st.sampled_from(["", "claude"]),
        "status": st.sampled_from(list(Status)) | st.sampled_from(["pending", "blocked", "completed"]).map(Status),
        "rank": st.integers(-3, 3),
        "hold": st.none() | holds,
        "blocked_by": st.lists(KEYS, max_size=2, unique=True).map(tuple),
        "run": st.none() | runs,
        "lingering": st.lists(runs, max_size=2).map(tuple),
        "question": st.none() | questions,
        "awaiting": st.none() | st.just("review"),
        "batch": st.none() | st.just("b"),
        "assigned_to": st.none() | st.just("r1"),
    },
)
filters = st.builds(
    Filter,
    status=st.lists(st.sampled_from(list(Status)), max_size=3).map(tuple),
    project=st.just("") | PROJECTS,
    task=st.just("") | KEYS,
    prefix=st.sampled_from(["", "t", "t1"]),
    ready=st.booleans(),
    open_question=st.booleans(),
    awaiting=st.booleans(),
    batch=st.sampled_from(["", "b"]),
    assigned_to=st.sampled_from(["", "r1"]),
)
said = st.lists(st.builds(fact, at=TIMES, task_id=st.none() | KEYS), max_size=2)


class BothStores(RuleBasedStateMachine):
    """Every step is done to both; the versions stay each store's own secret."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="codefleet-agree-"))
        self.options = Options(synchronous="OFF", idle=60)
        self.memory: Store = MemoryStore(SystemClock())
        self.sqlite: Store = embedded(self.folder, options=self.options)
        self.old: dict[Store, Held[Task]] = {}
        self.positions = [""]
        self.both(lambda store: store.open())

    def teardown(self) -> None:
        self.both(lambda store: store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Store], Awaitable[T]]) -> list[T]:
        return [self.runner.run(_awaited(call(store))) for store in (self.memory, self.sqlite)]

    def same(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """What both answer, or how both refuse."""
        one, other = self.both(lambda store: _outcome(call(store)))
        assert one == other
        return one

    def each(self, arguments: Iterable[Any], call: Callable[[Store, Any], Awaitable[Any]]) -> None:
        for argument in arguments:
            self.same(partial(_swap, call, argument))

    # ------------------------------------------------------------------------------------------------- steps

    @rule(key=KEYS | st.sampled_from(["u1", "u2"]), given=changes, facts=said)
    def add(self, key: str, given: dict[str, Any], facts: list[Any]) -> None:
        self.same(lambda store: _value(store.add(task(key, **given), facts)))

    @initialize(ranks=st.lists(st.integers(-3, 3), min_size=5, max_size=5))
    def begin(self, ranks: list[int]) -> None:
        for n, rank in enumerate(ranks):
            self.add(f"t{n + 1}", {"rank": rank, "project": "pq"[n % 2]}, [fact(at=n)])

    @rule(many=st.lists(st.tuples(KEYS, changes, said), min_size=1, max_size=5))
    def commit(self, many: list[tuple[str, dict[str, Any], list[Any]]]) -> None:
        async def change(store: Store) -> Any:
            for key, given, facts in many:
                [held] = await store.get(Task, [key])
                self.old[store] = held
                await store.commit(held, replace(held.value, **given), facts)

        self.same(change)

    @rule(facts=said)
    def commit_what_was_held_before(self, facts: list[Any]) -> None:
        async def change(store: Store) -> Any:
            held = self.old.get(store)
            return held and (await store.commit(held, replace(held.value, title="late"), facts)).value

        self.same(change)

    @rule(value=runs | st.builds(Pause, id=st.sampled_from(["fleet", "agent:x"]), question=st.none() | questions))
    def add_another_kind(self, value: Aggregate) -> None:
        self.same(lambda store: _value(store.add(value)))

    @rule(key=WHO, now=TIMES, busy=st.integers(0, 2))
    def beat(self, key: str, now: int, busy: int) -> None:
        self.both(lambda store: store.beat(engine(key, busy=busy), now))

    @rule(key=WHO)
    def retire(self, key: str) -> None:
        self.both(lambda store: store.retire(key))

    @rule(items=st.lists(st.builds(Activity, run=KEYS, n=st.integers(0, 5), at=TIMES, kind=st.just("log")), max_size=3))
    def log(self, items: list[Activity]) -> None:
        self.both(lambda store: store.log(items))

    @rule(before=TIMES)
    def purge(self, before: int) -> None:
        self.same(lambda store: store.purge(before))

    @rule()
    def reopen(self) -> None:
        self.both(lambda store: store.close())
        self.sqlite, old = embedded(self.folder, options=self.options), self.sqlite
        if old in self.old:
            self.old[self.sqlite] = self.old.pop(old)
        self.both(lambda store: store.open())

    # ----------------------------------------------------------------------------------------------- answers

    @rule(kind=st.sampled_from([Task, Run, Pause, Engine]), where=filters, limit=st.integers(1, 3))
    def find(self, kind: type[Any], where: Filter, limit: int) -> None:
        async def pages(store: Store) -> list[Any]:
            found, after = [], ""
            while True:
                page = await store.find(kind, where, Page(limit=limit, after=after))
                found.append([value.id for value in page.items])
                after = page.after
                if not after:
                    return found

        self.same(pages)

    @rule(data=st.data())
    def facts_behind(self, data: st.DataObject) -> None:
        after = data.draw(st.sampled_from(self.positions))
        self.same(lambda store: store.facts(after, 3))
        self.same(lambda store: store.facts(after, task="t1"))
        self.same(lambda store: store.facts(after, 2, task="u1"))
        self.same(lambda store: store.changed(after, 0))

    @rule(
        lanes=st.lists(st.builds(Lane, PROJECTS, st.sampled_from(["", "claude"])), unique=True), skip=st.integers(0, 2)
    )
    def ready(self, lanes: list[Lane], skip: int) -> None:
        self.same(lambda store: store.ready(lanes, 2, skip))

    @invariant()
    def both_know_the_same(self) -> None:
        self.same(lambda store: _values(store.get(Task, ["t1", "t2", "t3", "t4", "t5", "u1", "u2"])))
        self.same(lambda store: store.lanes())
        self.same(lambda store: store.ready([], 10))
        self.same(lambda store: store.engines())
        self.same(lambda store: store.activity(limit=4))
        self.each(("", "p", "q"), lambda store, project: store.counts(project))
        self.each(("t1", "t2"), lambda store, key: store.waiting_on(key))
        self.each(("t1", "t2"), lambda store, key: store.last_activity(key))
        self.each(("t1", "t2"), lambda store, key: store.activity(key))
        self.each(("e1", "e2"), lambda store, key: store.owned_by(key))
        self.each((0, 10, 20), lambda store, now: _set(store.overdue(now)))
        position = self.same(lambda store: store.position())
        if position not in self.positions:
            self.positions.append(position)


def _swap(call: Callable[[Store, Any], Awaitable[Any]], argument: Any, store: Store) -> Awaitable[Any]:
    return call(store, argument)


def _awaited(call: Awaitable[T]) -> Coroutine[Any, Any, T]:
    async def wait() -> T:
        return await call

    return wait()


async def _outcome(call: Awaitable[Any]) -> Any:
    try:
        answer = await call
    except CodeFleetError as error:
        return type(error)
    return list(answer) if isinstance(answer, (list, tuple)) else answer


async def _value(call: Awaitable[Held[Any]]) -> Any:
    return (await call).value


async def _values(call: Awaitable[Any]) -> Any:
    return [held.value for held in await call]


async def _set(call: Awaitable[Any]) -> Any:
    return set(await call)


class TestBothStores(BothStores.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        # A failure is told as it was found: shrinking the steps takes minutes. Add Phase.shrink to have it.
        phases=(Phase.generate,),
    )
