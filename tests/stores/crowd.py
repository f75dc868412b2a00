"""A process that works on a store and says each acknowledged step on its output.

python crowd.py FOLDER NAME FAULT add NUMBER       add so many tasks (0: until killed)
python crowd.py FOLDER NAME FAULT claim            assign ready tasks to NAME until none is left
python crowd.py FOLDER NAME FAULT count NUMBER     raise the counter of task `c`, so many times
python crowd.py FOLDER NAME FAULT open             open, and close
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import anyio

from codefleet.core.errors import Stale
from codefleet.core.model import Status, Task
from codefleet.ports import Held, Store
from codefleet.testing.faults import Fault, FaultyStore
from codefleet.testing.stores import embedded, fact, task, the


def say(text: str) -> None:
    print(text, flush=True)


async def add(store: Store, name: str, number: int) -> None:
    async def some(who: int) -> None:
        for n in count():
            if number and n * 4 + who >= number:
                return
            key = f"{name}-{who}-{n}"
            await store.add(task(key), [fact("task_created", task_id=key)])
            say(key)

    async with anyio.create_task_group() as group:
        for who in range(4):
            group.start_soon(some, who)


async def claim(store: Store, name: str, _: int) -> None:
    while ready := await store.ready([], 8):
        for held in await store.get(Task, ready):
            if held.value.status is Status.PENDING and await _assigned(store, held, name):
                say(held.value.id)


async def _assigned(store: Store, held: Held[Task], name: str) -> bool:
    try:
        await store.commit(held, replace(held.value, status=Status.ASSIGNED, assigned_to=name), [fact("task_assigned")])
    except Stale:
        return False
    return True


async def raise_counter(store: Store, _: str, number: int) -> None:
    done = 0
    while done < number:
        held = await the(store, Task, "c")
        try:
            await store.commit(held, replace(held.value, attempts=held.value.attempts + 1), [fact()])
        except Stale:
            continue
        done += 1


async def main(folder: str, name: str, fault: str, what: str, number: str = "0") -> None:
    store = FaultyStore(embedded(Path(folder)), *([Fault.parse(fault)] if fault != "-" else []))
    await store.open()
    say("open")
    if what != "open":
        await {"add": add, "claim": claim, "count": raise_counter}[what](store, name, int(number))
    await store.close()


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:]))
