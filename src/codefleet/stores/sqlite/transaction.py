"""One transaction of the writing connection: what many commands change together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import apsw

from codefleet.core.model import Fact, Task
from codefleet.stores import documents
from codefleet.stores.sqlite import queries

#: position, at, prev, other, body
Line = tuple[int, int, int | None, str | None, bytes]


class Transaction:
    """Begun again and again on one connection. What it remembers beyond one is forgotten at a rollback."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self.facts = False
        """Did it state any fact?"""
        self._lanes: dict[tuple[str, str], int] = {}
        self._tally: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._newest: int | None = None

    def begin(self) -> None:
        self.facts = False
        self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        for (project, status), delta in self._tally.items():
            if delta:
                queries.run(self.db, "tally_add", project, status, delta)
        self._tally.clear()
        self.db.execute("COMMIT")

    def others_wrote(self) -> None:
        """What is remembered of the log is not true any more."""
        self._newest = None

    def rollback(self) -> None:
        self._newest = None
        self._lanes.clear()
        self._tally.clear()
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def lane(self, project: str, agent: str) -> int:
        """The number of a lane, which is made when it is new."""
        key = (project, agent)
        if key not in self._lanes:
            found = queries.value(self.db, "lane_get", *key)
            self._lanes[key] = found or queries.value(self.db, "lane_insert", *key)
        return self._lanes[key]

    def count(self, task: Task, by: int) -> None:
        self._tally[task.project, task.status.value] += by

    @property
    def newest(self) -> int:
        """The position of the newest fact."""
        if self._newest is None:
            self._newest = int(queries.value(self.db, "position"))
        return self._newest

    def state(self, lines: Sequence[Line]) -> None:
        """Append facts to the log."""
        for line in lines:
            queries.run(self.db, "fact_insert", *line)
            self._newest = line[0]
        self.facts = self.facts or bool(lines)


def bodies(facts: Sequence[Fact]) -> list[tuple[Fact, bytes]]:
    """Facts with what is stored of them; refused here, on the caller's side, if they can not be stored."""
    return [(fact, documents.encode(fact)) for fact in facts]


def lines(
    said: Sequence[tuple[Fact, bytes]], newest: int, task: str, last: int | None
) -> tuple[list[Line], int | None]:
    """The rows of facts behind the newest; those of the task itself are chained to its last. And its last then."""
    rows: list[Line] = []
    for position, (fact, body) in enumerate(said, newest + 1):
        if task and fact.task_id == task:
            rows.append((position, fact.at, last, None, body))
            last = position
        else:
            rows.append((position, fact.at, None, fact.task_id, body))
    return rows, last
