"""One transaction of the writing connection: what many commands change together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import apsw

from codefleet.core.model import Fact, Task
from codefleet.stores import documents
from codefleet.stores.sqlite import queries


class Transaction:
    """Begun again and again on one connection. What it remembers beyond one is forgotten at a rollback."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self.facts = False
        """Did it state any fact?"""
        self._lanes: dict[tuple[str, str], int] = {}
        self._tally: defaultdict[tuple[str, str], int] = defaultdict(int)

    def begin(self) -> None:
        self.facts = False
        self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        for (project, status), delta in self._tally.items():
            if delta:
                queries.run(self.db, "tally_add", project, status, delta)
        self._tally.clear()
        self.db.execute("COMMIT")

    def rollback(self) -> None:
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

    def state(self, facts: Sequence[tuple[Fact, bytes]]) -> None:
        """Append facts to the log."""
        for fact, body in facts:
            queries.run(self.db, "fact_insert", fact.at, fact.task_id, body)
        self.facts = self.facts or bool(facts)


def bodies(facts: Sequence[Fact]) -> list[tuple[Fact, bytes]]:
    """Facts with what is stored of them; refused here, on the caller's side, if they can not be stored."""
    return [(fact, documents.encode(fact)) for fact in facts]
