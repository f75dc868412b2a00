"""What the writing thread is asked to do. Each looks before it writes, so a refused one has changed nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apsw

from codefleet.core.model import TERMINAL, Activity, Aggregate, Engine, Fact, Instant, Task
from codefleet.stores import documents
from codefleet.stores.sqlite import columns, queries
from codefleet.stores.sqlite.transaction import Line, Transaction, bodies, lines

#: Row and counter, which name one state of one aggregate for ever, and the last fact that a task stated of itself.
Version = tuple[int, int, int | None]


@dataclass(frozen=True, slots=True)
class Stored:
    """An aggregate as it now stands in the file."""

    version: Version
    document: bytes


def add(new: Aggregate, document: bytes, facts: Sequence[Fact]) -> Callable[[Transaction], Stored]:
    """Create, unless the same is there already."""
    said = bodies(facts)
    born = documents.digest(document)

    def run(tx: Transaction) -> Stored:
        rows, last = _lines(tx, said, new, None)
        if isinstance(new, Task):
            n = _insert_task(tx, new, document, last, born)
        else:
            n = _insert(tx.db, new, document, born)
        if not n:
            return _known(tx.db, new, document, born)
        tx.state(rows)
        return Stored((n, 1, last), document)

    return run


def _lines(
    tx: Transaction, said: Sequence[tuple[Fact, bytes]], new: Aggregate, last: int | None
) -> tuple[Sequence[Line], int | None]:
    return lines(said, tx.newest, new.id if isinstance(new, Task) else "", last) if said else ((), last)


def _known(db: apsw.Connection, new: Aggregate, document: bytes, born: bytes) -> Stored:
    """What is stored under the id already, if it is or once was the same."""
    if isinstance(new, Task):
        *version, stored, first = queries.row(db, "task_born", new.id)
    else:
        *version, stored, first = queries.row(db, "record_born", documents.name(type(new)), new.id)
    if document != stored and born != first:
        raise documents.exists(type(new), new.id)
    n, counter, last = version
    return Stored((n, counter, last), stored)


def _insert(db: apsw.Connection, new: Aggregate, document: bytes, born: bytes) -> int:
    """The number of the new row; 0: the id is taken."""
    queries.run(db, "record_insert", *columns.of_record(new, document), documents.name(type(new)), new.id, born)
    return db.last_insert_rowid() if db.changes() else 0


def _insert_task(tx: Transaction, new: Task, document: bytes, last: int | None, born: bytes) -> int:
    lane = tx.lane(new.project, new.agent)
    queries.run(tx.db, "task_insert", lane, *columns.of_task(new, document), last, new.id, born)
    if not tx.db.changes():
        return 0
    n = tx.db.last_insert_rowid()
    tx.count(new, 1)
    for key in new.blocked_by:
        _block(tx.db, key, new.id)
    if new.status in TERMINAL:
        queries.run(tx.db, "ended_arises", new.id)
    return n


def commit(
    held: Aggregate, version: Version, new: Aggregate, document: bytes, facts: Sequence[Fact]
) -> Callable[[Transaction], Stored]:
    """Replace the version held, or nothing."""
    said = bodies(facts)
    n, counter, before = version

    def run(tx: Transaction) -> Stored:
        rows, last = _lines(tx, said, new, before)
        if isinstance(new, Task) and isinstance(held, Task):
            _update_task(tx, held, new, (*columns.of_task(new, document), last, n, counter, new.id))
        else:
            _update(tx.db, new, (*columns.of_record(new, document), n, counter))
        tx.state(rows)
        return Stored((n, counter + 1, last), document)

    return run


def _update(db: apsw.Connection, new: Aggregate, row: columns.Columns) -> None:
    key = (documents.name(type(new)), new.id)
    queries.run(db, "record_update", *row, *key)
    if not db.changes():
        exists = queries.value(db, "record_exists", *key)
        raise (documents.stale if exists else documents.missing)(type(new), new.id)


def _update_task(tx: Transaction, held: Task, new: Task, row: columns.Columns) -> None:
    queries.run(tx.db, "task_update", tx.lane(new.project, new.agent), *row)
    if not tx.db.changes():
        exists = queries.value(tx.db, "task_exists", new.id)
        raise (documents.stale if exists else documents.missing)(Task, new.id)
    if held.status is not new.status or held.project != new.project:
        tx.count(held, -1)
        tx.count(new, 1)
    if held.blocked_by != new.blocked_by:
        _block_otherwise(tx.db, held, new)
    if (held.status in TERMINAL) is not (new.status in TERMINAL):
        queries.run(tx.db, "ended_arises" if new.status in TERMINAL else "ended_reopened", new.id)
    if documents.text(held) != documents.text(new):
        index_again(tx.db, new)


def _block_otherwise(db: apsw.Connection, held: Task, new: Task) -> None:
    for key in set(held.blocked_by).difference(new.blocked_by):
        queries.run(db, "dep_delete", key, new.id)
        queries.run(db, "ended_over", key)
    for key in set(new.blocked_by).difference(held.blocked_by):
        _block(db, key, new.id)


def _block(db: apsw.Connection, on: str, task: str) -> None:
    queries.run(db, "dep_insert", on, task)
    queries.run(db, "ended_arises", on)


def beat(engine: Engine, document: bytes) -> Callable[[Transaction], None]:
    """Create or replace an engine."""
    kind = documents.name(Engine)

    def run(tx: Transaction) -> None:
        row = columns.of_record(engine, document)
        queries.run(tx.db, "record_replace", *row, kind, engine.id)
        if not tx.db.changes():
            queries.run(tx.db, "record_insert", *row, kind, engine.id, documents.digest(document))

    return run


def retire(engine: str) -> Callable[[Transaction], None]:
    def run(tx: Transaction) -> None:
        queries.run(tx.db, "record_delete", documents.name(Engine), engine)

    return run


def log(items: Sequence[Activity]) -> Callable[[Transaction], None]:
    """Append telemetry that is not there yet."""
    lines = [(item.run, item.n, item.at, documents.encode(item)) for item in items]

    def run(tx: Transaction) -> None:
        for line in lines:
            queries.run(tx.db, "activity_insert", *line)

    return run


# ------------------------------------------------------------------------------------------------- text index


def index_again(db: apsw.Connection, task: Task) -> None:
    """The words of a task that was indexed already are others now."""
    n = queries.row(db, "task_get", task.id)[0]
    if n <= queries.value(db, "meta", "indexed"):
        queries.run(db, "words_delete", n)
        queries.run(db, "words_insert", n, *documents.text(task))


def unindexed(db: apsw.Connection) -> bool:
    """Are there tasks whose words are not indexed?"""
    return bool(queries.value(db, "index_behind"))


def index(limit: int) -> Callable[[Transaction], bool]:
    """Index the words of the next tasks; were there as many as allowed?"""

    def run(tx: Transaction) -> bool:
        done = queries.value(tx.db, "meta", "indexed")
        found = queries.rows(tx.db, "unindexed", done, limit)
        for n, document in found:
            queries.run(tx.db, "words_insert", n, *documents.text(documents.decode(Task, document)))
        if found:
            queries.run(tx.db, "meta_set", "indexed", found[-1][0])
        return len(found) == limit

    return run


# ------------------------------------------------------------------------------------------------------ purge


def purge_facts(before: Instant, limit: int) -> Callable[[Transaction], int]:
    """Drop the oldest facts, up to the first that is younger; the newest always stays. How many were dropped."""

    def run(tx: Transaction) -> int:
        first = queries.value(tx.db, "purge_first_kept", before)
        dropped = queries.column(tx.db, "purge_facts", first or 0, limit)
        if dropped:
            queries.run(tx.db, "meta_set", "gone", max(dropped))
        return len(dropped)

    return run


def purge_activity(before: Instant, after: int, to: int) -> Callable[[Transaction], int]:
    """Drop old activity in a range of arrival, but for the last of each run."""

    def run(tx: Transaction) -> int:
        queries.run(tx.db, "purge_activity", after, to, before)
        return tx.db.changes()

    return run
