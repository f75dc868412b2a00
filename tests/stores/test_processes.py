"""Several processes on one file, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from codefleet.core.model import Status, Task
from codefleet.ports import Filter, Page
from codefleet.testing.stores import embedded, fact, opened, task, the

Start = Callable[..., subprocess.Popen[str]]

CROWD = Path(__file__).with_name("crowd.py")


@contextmanager
def crowd(folder: Path) -> Iterator[Start]:
    """Starts processes on the store in a folder; none outlives the test."""
    running: list[subprocess.Popen[str]] = []

    def start(name: str, *what: str, fault: str = "-") -> subprocess.Popen[str]:
        argv = [sys.executable, str(CROWD), str(folder), name, fault, *what]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with crowd(tmp_path) as start:
        yield start


async def output(process: subprocess.Popen[str]) -> list[str]:
    """What a process said until it ended."""
    with anyio.fail_after(60):
        said, _ = await anyio.to_thread.run_sync(process.communicate)
    return said.split()


def read(process: subprocess.Popen[str], lines: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(lines)]


async def test_processes_that_open_a_new_store_at_once_make_it_once(tmp_path: Path, start: Start) -> None:
    processes = [start(f"p{n}", "open") for n in range(4)]
    for process in processes:
        assert await output(process) == ["open"]
        assert process.returncode == 0
    async with opened(embedded(tmp_path)) as store:
        assert not await store.facts()


async def test_processes_that_add_at_once_lose_nothing(tmp_path: Path, start: Start) -> None:
    said = [await output(process) for process in [start(f"p{n}", "add", "60") for n in range(2)]]
    async with opened(embedded(tmp_path)) as store:
        added = sorted(key for each in said for key in each[1:])
        assert len(added) == 120
        assert [held.value.id for held in await store.get(Task, added)] == added
        assert sorted(each.task_id or "" for each in await store.facts()) == added
        assert (await store.counts())[Status.PENDING] == 120


async def test_processes_that_claim_at_once_never_claim_the_same_task(tmp_path: Path, start: Start) -> None:
    async with opened(embedded(tmp_path)) as store:
        for n in range(100):
            await store.add(task(f"t{n}", rank=n))
        said = [await output(process) for process in [start("one", "claim"), start("two", "claim")]]
        claimed = sorted(key for each in said for key in each[1:])
        assert claimed == sorted(f"t{n}" for n in range(100))
        for name, each in zip(("one", "two"), said, strict=True):
            owned = await store.find(Task, Filter(assigned_to=name), Page(limit=200))
            assert sorted(value.id for value in owned.items) == sorted(each[1:])
        assert len(await store.facts()) == 100


async def test_processes_that_change_one_task_at_once_lose_no_update(tmp_path: Path, start: Start) -> None:
    async with opened(embedded(tmp_path)) as store:
        await store.add(task("c"))
        for process in [start(f"p{n}", "count", "40") for n in range(2)]:
            await output(process)
        assert (await the(store, Task, "c")).value.attempts == 80
        assert len(await store.facts()) == 80


async def test_whoever_waits_hears_of_a_fact_of_another_process(tmp_path: Path, start: Start) -> None:
    async with opened(embedded(tmp_path)) as store:
        await store.add(task("a"), [fact()])
        before = await store.position()
        async with anyio.create_task_group() as group:
            group.start_soon(output, start("other", "add", "4"))
            assert await store.changed(before, 60)


@pytest.mark.parametrize("said", [1, 2, 30, 90])
async def test_what_a_killed_process_was_told_is_stored(tmp_path: Path, start: Start, said: int) -> None:
    process = start("victim", "add")
    known = read(process, said)[1:]
    process.send_signal(signal.SIGKILL)
    known += (await output(process))[:-1]
    async with opened(embedded(tmp_path)) as store:
        assert len(await store.get(Task, known)) == len(known)
        facts = [each.task_id for each in await store.facts()]
        assert set(known) <= set(facts)
        assert len(facts) == len(set(facts)) == (await store.counts())[Status.PENDING]
        await store.add(task("after"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [1, 7])
async def test_a_process_killed_at_a_store_call_leaves_all_of_it_or_nothing(
    tmp_path: Path, start: Start, when: str, call: int
) -> None:
    process = start("victim", "add", fault=f"kill:{when}:{call}:add")
    said = (await output(process))[1:]
    assert process.returncode == -signal.SIGKILL
    async with opened(embedded(tmp_path)) as store:
        facts = {each.task_id for each in await store.facts()}
        assert set(said) <= facts
        assert len(facts) == (await store.counts())[Status.PENDING]
        if when == "after":
            assert len(facts) >= 1


async def test_a_frozen_process_holds_nobody_up(tmp_path: Path, start: Start) -> None:
    async with opened(embedded(tmp_path)) as store:
        await store.add(task("c"))
        process = start("frozen", "count", "9", fault="stop:before:3:commit")
        _, status = await anyio.to_thread.run_sync(os.waitpid, process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        held = await the(store, Task, "c")
        assert held.value.attempts == 2
        await store.commit(held, replace(held.value, attempts=10))
        process.send_signal(signal.SIGCONT)
        await output(process)
        assert (await the(store, Task, "c")).value.attempts == 17
