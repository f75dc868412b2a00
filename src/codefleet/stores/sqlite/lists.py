"""Reading: each function answers from one connection and leaves no cursor open."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import apsw

from codefleet.core.errors import InvalidInput
from codefleet.core.model import Activity, Aggregate, Engine, Fact, Instant, Lane, Run, Status, Task
from codefleet.ports import Filter, Held, Page, Paged
from codefleet.stores import documents
from codefleet.stores.sqlite import columns, queries

A = TypeVar("A", bound=Aggregate)

#: Before every task in order of (rank, n), and before every record in order of (task, number, id).
FIRST_TASK = (-(2**63), -1)
FIRST_RECORD = ("", -1, "")

#: A search looks at the rarest words, up to so many, and stops before it has to rank so many tasks.
WORDS = 12
RANKED = 20_000


def get(db: apsw.Connection, kind: type[A], ids: Sequence[str]) -> list[Held[A]]:
    found = (_get(db, kind, key) for key in ids)
    return [Held(documents.decode(kind, row[3]), row[:3]) for row in found if row is not None]


def _get(db: apsw.Connection, kind: type[Any], key: str) -> Any:
    if kind is Task:
        return queries.row(db, "task_get", key)
    return queries.row(db, "record_get", documents.name(kind), key)


@contextmanager
def _merged(cursors: Sequence[apsw.Cursor]) -> Iterator[Iterable[Any]]:
    """The rows of several ordered statements as one, read only as far as somebody asks."""
    try:
        yield heapq.merge(*cursors)
    finally:
        for cursor in cursors:
            cursor.close()


def ready(db: apsw.Connection, lanes: Sequence[Lane], limit: int, skip: int) -> list[str]:
    heads = [queries.cursor(db, "ready", n) for n in _numbers(db, lanes)]
    with _merged(heads) as found:
        return [key for _, _, key in itertools.islice(found, skip, skip + limit)]


def _numbers(db: apsw.Connection, lanes: Sequence[Lane]) -> list[int]:
    wanted = {(lane.project, lane.agent) for lane in lanes}
    found = queries.rows(db, "lane_all")
    return [n for n, project, agent in found if not wanted or (project, agent) in wanted]


def lanes(db: apsw.Connection) -> list[Lane]:
    return [Lane(project, agent) for project, agent in queries.rows(db, "lanes")]


def waiting_on(db: apsw.Connection, task: str, after: str, limit: int) -> list[str]:
    return queries.column(db, "waiting_on", task, after, limit)


def owned_by(db: apsw.Connection, engine: str) -> list[str]:
    return [key for owners, key in queries.rows(db, "owned_by") if engine in columns.split(owners)]


def overdue(db: apsw.Connection, now: Instant, limit: int) -> list[str]:
    found = queries.column(db, "overdue_lift", now, limit)
    for name in ("overdue_unawaited", "overdue_loose", "overdue_asking", "overdue_blocked"):
        found += queries.column(db, name, limit)
    return list(dict.fromkeys(found))[:limit]


def counts(db: apsw.Connection, project: str) -> dict[Status, int]:
    tally = dict(queries.rows(db, "counts", project) if project else queries.rows(db, "counts_all"))
    return {status: tally.get(status.value, 0) for status in Status}


def engines(db: apsw.Connection) -> list[Engine]:
    return [documents.decode(Engine, document) for document in queries.column(db, "engines")]


# ----------------------------------------------------------------------------------------------- for people


def find(db: apsw.Connection, kind: type[A], where: Filter, page: Page) -> Paged[A]:
    """A page of what a person asks for, and the cursor of the next."""
    after = _cursor(page.after, FIRST_TASK if kind is Task else FIRST_RECORD)
    with _merged(_candidates(db, kind, where, after)) as found:
        items = list(_matching(kind, found, where, page.limit + 1))
    more = len(items) > page.limit > 0
    shown = items[: max(page.limit, 0)]
    return Paged(tuple(value for _, value in shown), json.dumps(shown[-1][0]) if more else "")


def _matching(kind: type[A], found: Iterable[Any], where: Filter, limit: int) -> Iterator[tuple[list[Any], A]]:
    for *order, document in found:
        value = documents.decode(kind, document)
        if documents.matches(value, where):
            yield order, value
            limit -= 1
        if limit <= 0:
            return


def _candidates(db: apsw.Connection, kind: type[Any], where: Filter, after: Sequence[Any]) -> list[apsw.Cursor]:
    """Ordered rows among which are all that match: few where an index of its own knows them, else by state."""
    if kind is not Task:
        return [_records(db, kind, where, after)]
    narrow = _narrow(where)
    if narrow:
        return [queries.cursor(db, *narrow, *after)]
    return [*_heads_of_ready(db, where, after), *_heads_of_others(db, where, after)]


def _heads_of_ready(db: apsw.Connection, where: Filter, after: Sequence[Any]) -> list[apsw.Cursor]:
    """What is ready is ordered by lane."""
    if Status.PENDING.value not in _statuses(where):
        return []
    lanes = [n for n, project, _ in queries.rows(db, "lane_all") if where.project in {"", project}]
    return [queries.cursor(db, "tasks_ready", n, *after) for n in lanes]


def _heads_of_others(db: apsw.Connection, where: Filter, after: Sequence[Any]) -> list[apsw.Cursor]:
    """What is not ready is ordered by project and state; the tally knows which of these there are."""
    if where.ready:
        return []
    wanted = _statuses(where)
    pairs = [pair for pair in queries.rows(db, "tally_open") if where.project in {"", pair[0]} and pair[1] in wanted]
    return [queries.cursor(db, "tasks", *pair, *after) for pair in pairs]


def _statuses(where: Filter) -> set[str]:
    """The states that the conditions leave."""
    wanted = set(where.status) or set(Status)
    if where.ready:
        wanted &= {Status.PENDING}
    if where.awaiting:
        wanted &= {Status.VERIFIED}
    return {status.value for status in wanted}


def _narrow(where: Filter) -> tuple[str, ...]:
    """The statement that leaves few, where such a condition is asked for, with what it binds."""
    if where.prefix:
        return "tasks_by_prefix", where.prefix, where.prefix + "\U0010ffff"
    if where.batch:
        return "tasks_by_batch", where.batch
    if where.open_question:
        return ("tasks_asking",)
    if where.assigned_to:
        return "tasks_by_assignee", where.assigned_to
    return ()


def _records(db: apsw.Connection, kind: type[Any], where: Filter, after: Sequence[Any]) -> apsw.Cursor:
    if where.task and kind is Run:
        return queries.cursor(db, "records_of_task", documents.name(kind), where.task, *after)
    return queries.cursor(db, "records", documents.name(kind), *after)


def _cursor(after: str, first: Sequence[Any]) -> Sequence[Any]:
    if not after:
        return first
    try:
        found = json.loads(after)
    except ValueError:
        found = None
    if not isinstance(found, list) or [type(part) for part in found] != [type(part) for part in first]:
        raise InvalidInput(f"{after!r} is no cursor of a list")
    return found


# ------------------------------------------------------------------------------------------- facts, activity


def facts(db: apsw.Connection, after: str, limit: int, task: str) -> list[Fact]:
    position = checked(db, after)
    if task:
        found = queries.rows(db, "facts_of_task", task, position, limit)
    else:
        found = queries.rows(db, "facts", position, limit)
    return [replace(documents.decode(Fact, body), position=str(at)) for at, body in found]


def checked(db: apsw.Connection, after: str) -> int:
    """A position as a number; refused when the facts behind it are not all kept."""
    if not after:
        return 0
    if not after.isdecimal():
        raise InvalidInput(f"{after!r} is no position of a fact", hint="take one from `codefleet events`")
    asked = int(after)
    if asked < queries.value(db, "meta", "gone") or asked > position(db):
        raise documents.gone(after)
    return asked


def position(db: apsw.Connection) -> int:
    return int(queries.value(db, "position"))


def activity(db: apsw.Connection, run: str, after: int, limit: int) -> list[Activity]:
    if run:
        found = queries.rows(db, "activity_of_run", run, after, limit)
    else:
        found = queries.rows(db, "activity_newest", limit)[::-1]
    return [documents.decode(Activity, body) for (body,) in found]


def last_activity(db: apsw.Connection, run: str) -> int:
    return int(queries.value(db, "activity_last", run))


def activity_bounds(db: apsw.Connection) -> tuple[int, int]:
    """The sequence numbers before the oldest and of the newest activity."""
    first, last = queries.row(db, "activity_bounds")
    return first, last


# --------------------------------------------------------------------------------------------------- similar


def similar(db: apsw.Connection, text: str, project: str, limit: int) -> list[tuple[str, float]]:
    wanted = " OR ".join(f'"{word}"' for word in _rarest(db, documents.words(text)))
    if not wanted:
        return []
    if project:
        return queries.rows(db, "similar", wanted, project, limit)
    return queries.rows(db, "similar_all", wanted, limit)


def _rarest(db: apsw.Connection, words: Sequence[str]) -> list[str]:
    """The words that tell most, as many as can be ranked fast."""
    known = sorted((many, word) for word in words[:200] if (many := _frequency(db, word)))
    ranked = itertools.accumulate(many for many, _ in known)
    return [word for (_, word), total in zip(known[:WORDS], ranked, strict=False) if total <= RANKED] or [
        word for _, word in known[:1]
    ]


def _frequency(db: apsw.Connection, word: str) -> int:
    """How many tasks hold a word, whatever its ending."""
    stem: Any = db.fts5_tokenizer("porter", ["unicode61"])(
        word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False
    )
    return int(queries.value(db, "words_known", stem[0][0]) or 0) if stem else 0
