"""A trial: the core of the store port on a real Elasticsearch, under the contract that the other stores keep.

`scripts/elastic-trial` starts a node and runs `elastic_trial.py` on it. This is no adapter for use: it exists to show that
the port can be kept where there is nothing but compare-and-set on single documents and lists that lag.

An aggregate is one document: its JSON, the fields that `ready` looks at, the id of its last commit, and an outbox of
facts that are not in the log yet. The log is made of pages, one document each, numbered without gaps. A relay puts
facts into the next page (create-only), then takes them out of their outboxes, then moves the pointer below which
nothing is left to take out.
"""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread

from codefleet.core.errors import StoreUnavailable
from codefleet.core.model import Aggregate, Fact, Lane, Task
from codefleet.ports import Held, StoreInfo
from codefleet.stores import documents

A = TypeVar("A", bound=Aggregate)

#: Seconds after which a search sees what was written.
REFRESH = 0.2

#: Pages that one request reads.
AHEAD = 20

MAPPING: Mapping[str, Any] = {
    "settings": {"number_of_replicas": 0, "refresh_interval": f"{int(REFRESH * 1000)}ms"},
    "mappings": {
        "dynamic": "strict",
        "properties": {
            "document": {"type": "object", "enabled": False},
            "commit": {"type": "keyword", "index": False},
            "born": {"type": "keyword", "index": False},
            "outbox": {"type": "object", "enabled": False},
            "waiting": {"type": "boolean"},
            "project": {"type": "keyword"},
            "agent": {"type": "keyword"},
            "ready": {"type": "boolean"},
            "rank": {"type": "long"},
        },
    },
}

KINDS = ("task", "project", "run", "agent", "engine", "pause", "proof")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as it was read: what the next write must find, and what it must keep."""

    commit: str
    seq_no: int
    term: int
    source: dict[str, Any] = field(compare=False)


def _stored(found: Mapping[str, Any]) -> Stored:
    source = found["_source"]
    return Stored(source["commit"], found["_seq_no"], found["_primary_term"], source)


class Http:
    """Requests to one node, on threads. `lose` may break the connection when a request has been sent."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self.lose: Callable[[str, str], bool] = lambda _method, _path: False

    async def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        return await anyio.to_thread.run_sync(self._send, method, path, body)

    def _send(self, method: str, path: str, body: Any) -> Answer:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"Elasticsearch did not answer: {error}") from error
        finally:
            connection.close()
        if self.lose(method, path):
            raise StoreUnavailable("the answer was lost")
        if answer.status == 429 or answer.status >= 500:
            raise StoreUnavailable(f"Elasticsearch could not: {answer.status} {text[:200]!r}")
        return Answer(answer.status, json.loads(text or b"null"))


class ElasticCore:
    """`open get add commit ready facts relay` on one node."""

    def __init__(self, url: str, prefix: str) -> None:
        self.http = Http(url)
        self._prefix = prefix
        self._open = False
        self._mine: set[tuple[str, str]] = set()
        """What this handle wrote with facts that it has not relayed."""

    def _index(self, kind: str) -> str:
        if not self._open:
            raise StoreUnavailable("the store is not open")
        return f"{self._prefix}-{kind}"

    def _path(self, kind: str, key: str, how: str = "_doc") -> str:
        return f"/{self._index(kind)}/{how}/{quote(key, safe='')}"

    # -------------------------------------------------------------------------------------------------- life

    async def open(self) -> StoreInfo:
        if not self._open:
            self._open = True
            log = {"mappings": {"dynamic": "strict", "properties": {"facts": {"type": "object", "enabled": False}}}}
            pointer = {"mappings": {"properties": {"done": {"type": "long"}}}}
            for name, body in (*((kind, MAPPING) for kind in KINDS), ("log", log), ("pointer", pointer)):
                await self.http("PUT", f"/{self._index(name)}", {"settings": {"number_of_replicas": 0}, **body})
        return StoreInfo(kind="elastic-trial", schema=1, lag=REFRESH)

    async def close(self) -> None:
        self._open = False

    # -------------------------------------------------------------------------------------------- aggregates

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        found = await self._get(documents.name(kind), ids)
        return [Held(self._value(kind, each), each) for each in found]

    async def _get(self, kind: str, ids: Sequence[str]) -> list[Stored]:
        """Real time, whatever a search would see."""
        index = self._index(kind)
        answer = await self.http("POST", f"/{index}/_mget", {"ids": list(ids)}) if ids else Answer(200, {"docs": []})
        return [_stored(each) for each in answer.body["docs"] if each.get("found")]

    def _value(self, kind: type[A], stored: Stored) -> A:
        return documents.decode(kind, json.dumps(stored.source["document"]).encode())

    async def add(self, new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        kind, document = documents.name(type(new)), documents.encode(new)
        source = self._source(new, document, facts, born=documents.digest(document).hex())
        answer = await self._sure("PUT", self._path(kind, new.id, "_create"), source, kind, new.id)
        if answer is None:
            [stored] = await self._get(kind, [new.id])
            same = stored.source["document"] == source["document"] or stored.source["born"] == source["born"]
            if not same:
                raise documents.exists(type(new), new.id)
            return Held(self._value(type(new), stored), stored)
        return self._written(new, answer, facts)

    async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        documents.same_id(held.value, new)
        kind, document, before = documents.name(type(new)), documents.encode(new), held.version
        while True:
            source = self._source(new, document, facts, born=before.source["born"], outbox=before.source["outbox"])
            path = f"{self._path(kind, new.id)}?if_seq_no={before.seq_no}&if_primary_term={before.term}"
            answer = await self._sure("PUT", path, source, kind, new.id)
            if answer is not None:
                return self._written(new, answer, facts)
            before = await self._same_commit(type(new), new.id, held.version)

    async def _same_commit(self, kind: type[A], key: str, before: Stored) -> Stored:
        """The document as it is now, if only a relay has touched it since."""
        found = await self._get(documents.name(kind), [key])
        if not found:
            raise documents.missing(kind, key)
        if found[0].commit != before.commit:
            raise documents.stale(kind, key)
        return found[0]

    async def _sure(self, method: str, path: str, source: dict[str, Any], kind: str, key: str) -> Stored | None:
        """Write one document. None: somebody was first. Where the answer is lost, the document tells."""
        try:
            answer = await self.http(method, path, source)
        except StoreUnavailable:
            found = await self._get(kind, [key])
            if found and found[0].commit == source["commit"]:
                return found[0]
            raise
        if answer.status == 409:
            return None
        if answer.status >= 400:
            raise StoreUnavailable(f"Elasticsearch refused: {answer.body}")
        return Stored(source["commit"], answer.body["_seq_no"], answer.body["_primary_term"], source)

    def _written(self, new: A, stored: Stored, facts: Sequence[Fact]) -> Held[A]:
        if facts:
            self._mine.add((documents.name(type(new)), new.id))
        return Held(new, stored)

    def _source(
        self, new: Aggregate, document: bytes, facts: Sequence[Fact], *, born: str, outbox: Iterable[Any] = ()
    ) -> dict[str, Any]:
        commit = uuid.uuid4().hex
        stated = [{"key": f"{commit}.{n}", "fact": json.loads(documents.encode(one))} for n, one in enumerate(facts)]
        waiting = [*outbox, *stated]
        source = {"document": json.loads(document), "commit": commit, "born": born}
        if isinstance(new, Task):
            ready = documents.is_ready(new)
            source |= {"project": new.project, "agent": new.agent, "ready": ready, "rank": new.rank}
        return {**source, "outbox": waiting, "waiting": bool(waiting)}

    # ------------------------------------------------------------------------------------------------- lists

    async def ready(self, lanes: Sequence[Lane], limit: int, skip: int = 0) -> Sequence[str]:
        either = [
            {"bool": {"filter": [{"term": {"project": lane.project}}, {"term": {"agent": lane.agent}}]}}
            for lane in lanes
        ]
        wanted: dict[str, Any] = {"filter": [{"term": {"ready": True}}]}
        if either:
            wanted |= {"should": either, "minimum_should_match": 1}
        query = {"query": {"bool": wanted}, "sort": [{"rank": "asc"}], "from": skip, "size": limit, "_source": False}
        answer = await self.http("POST", f"/{self._index('task')}/_search", query)
        return [each["_id"] for each in answer.body["hits"]["hits"]]

    # ------------------------------------------------------------------------------------------------- facts

    async def facts(self, after: str = "", limit: int = 1000, *, task: str = "") -> Sequence[Fact]:
        page, n = map(int, after.split(".")) if after else (0, -1)
        found: list[Fact] = []
        async for number, held in self._pages(max(page, 1)):
            for index, each in enumerate(held):
                one = documents.decode(Fact, json.dumps(each["fact"]).encode())
                if (number, index) > (page, n) and (not task or one.task_id == task):
                    found.append(replace(one, position=f"{number}.{index}"))
            if len(found) >= limit:
                break
        return found[:limit]

    async def _pages(self, first: int) -> AsyncIterator[tuple[int, list[Any]]]:
        """Pages in order, up to the first that is not there. Never by search: that would skip."""
        while True:
            numbers = [str(number) for number in range(first, first + AHEAD)]
            answer = await self.http("POST", f"/{self._index('log')}/_mget", {"ids": numbers})
            for each in answer.body["docs"]:
                if not each.get("found"):
                    return
                yield int(each["_id"]), each["_source"]["facts"]
            first += AHEAD

    async def relay(self, limit: int = 1000) -> int:
        """The order matters: the pointer, the pages above it, and then the outboxes, each in real time."""
        done, pointer = await self._pointer()
        above = [page async for page in self._pages(done + 1)]
        places = self._mine | await self._outboxes(limit)
        waiting = await self._waiting(places)
        moved = await self._append(waiting, done + len(above), above)
        for kind, key in places | {(each["kind"], each["id"]) for _, held in above for each in held}:
            await self._trim(kind, key, {each["key"] for _, held in above for each in held})
        self._mine -= places
        if above:
            await self._advance(above[-1][0], pointer)
        return moved

    async def _pointer(self) -> tuple[int, Stored | None]:
        answer = await self.http("GET", self._path("pointer", "pointer"))
        if answer.status == 404:
            return 0, None
        found = answer.body
        return found["_source"]["done"], Stored("", found["_seq_no"], found["_primary_term"], {})

    async def _outboxes(self, limit: int) -> set[tuple[str, str]]:
        """Outboxes that somebody forgot: a search may see them late, but sees them in the end."""
        names = ",".join(self._index(kind) for kind in KINDS)
        query = {"query": {"term": {"waiting": True}}, "size": limit, "_source": False}
        answer = await self.http("POST", f"/{names}/_search", query)
        return {(each["_index"].rpartition("-")[2], each["_id"]) for each in answer.body["hits"]["hits"]}

    async def _waiting(self, places: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """The facts in these outboxes, each outbox in its own order."""
        return [
            {**each, "kind": kind, "id": key}
            for kind, key in sorted(places)
            for stored in await self._get(kind, [key])
            for each in stored.source["outbox"]
        ]

    async def _append(self, waiting: Sequence[Any], last: int, above: list[tuple[int, list[Any]]]) -> int:
        """Put what no page holds into the next page; if another relay was first, look at its page and go on."""
        while True:
            held = {each["key"] for _, page in above for each in page}
            fresh = [each for each in waiting if each["key"] not in held]
            if not fresh:
                return 0
            last += 1
            answer = await self.http("PUT", self._path("log", str(last), "_create"), {"facts": fresh})
            if answer.status != 409:
                above.append((last, fresh))
                return len(fresh)
            there = await self.http("GET", self._path("log", str(last)))
            above.append((last, there.body["_source"]["facts"]))

    async def _trim(self, kind: str, key: str, held: set[str]) -> None:
        """Take out of an outbox what a page holds. The commit stays what it was."""
        while True:
            [stored] = await self._get(kind, [key])
            left = [each for each in stored.source["outbox"] if each["key"] not in held]
            if len(left) == len(stored.source["outbox"]):
                return
            path = f"{self._path(kind, key)}?if_seq_no={stored.seq_no}&if_primary_term={stored.term}"
            answer = await self.http("PUT", path, {**stored.source, "outbox": left, "waiting": bool(left)})
            if answer.status != 409:
                return

    async def _advance(self, done: int, before: Stored | None) -> None:
        """Say that nothing is left to take out up to a page. Losing this to another relay does no harm."""
        condition = f"?if_seq_no={before.seq_no}&if_primary_term={before.term}" if before else "?op_type=create"
        await self.http("PUT", self._path("pointer", "pointer") + condition, {"done": done})
