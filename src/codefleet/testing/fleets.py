"""A fleet for tests of engines: real git and processes, the scripted agent; store and configuration as a test likes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from codefleet.core.drafts import Draft
from codefleet.core.model import Fact, Run, Status, Task
from codefleet.core.settings import Settings
from codefleet.engine.backlog import Backlog
from codefleet.engine.engine import Engine
from codefleet.engine.parts import Parts

PROJECT = "11111111-1111-4111-8111-111111111111"


def git(path: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(path), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def script(*steps: dict[str, Any]) -> str:
    lines = "\n".join(json.dumps(step) for step in steps)
    return f"Do as it says.\n```script\n{lines}\n```\n"


DONE = {"result": {"status": "completed", "summary": "it is done"}}


@dataclass
class Configured:
    """What these tests configure."""

    settings: Settings

    def home(self) -> Settings:
        return self.settings

    async def project(self, repository: Path) -> Settings:
        del repository
        return self.settings


@dataclass
class Fleet:
    parts: Parts
    configured: Configured
    repository: Path
    engines: list[Engine] = field(default_factory=list)

    @property
    def backlog(self) -> Backlog:
        return Backlog(self.parts.store, self.parts.clock, self.parts.home)

    def configure(self, **changes: Any) -> None:
        self.configured.settings = replace(self.configured.settings, **changes)

    async def add(self, title: str, *steps: dict[str, Any], **more: Any) -> str:
        draft = Draft(title=title, description=script(*steps), **more)
        timeout = self.configured.settings.limits.timeout_seconds
        return (await self.backlog.add(PROJECT, draft, timeout_seconds=timeout)).id

    async def task(self, key: str) -> Task:
        [held] = await self.parts.store.get(Task, [key])
        return held.value

    async def run_of(self, key: str, number: int = 1) -> Run:
        [held] = await self.parts.store.get(Run, [f"{key}.{number}"])
        return held.value

    async def facts(self, key: str) -> list[Fact]:
        return list(await self.parts.store.facts(task=key))

    async def kinds(self, key: str) -> list[str]:
        return [fact.kind for fact in await self.facts(key)]

    def engine(self, slots: int = 2, **options: Any) -> Engine:
        engine = Engine(self.parts, slots=slots, **options)
        self.engines.append(engine)
        return engine

    async def until_idle(self, slots: int = 2, **options: Any) -> bool:
        with anyio.fail_after(60):
            return await self.engine(slots, until_idle=True, **options).run()

    @asynccontextmanager
    async def working(self, slots: int = 2, **options: Any) -> AsyncIterator[Engine]:
        engine = self.engine(slots, **options)
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run)
            yield engine
            engine.stop(now=True)

    async def eventually(self, true: Callable[[], Awaitable[bool]]) -> None:
        with anyio.fail_after(30):
            while not await true():  # noqa: ASYNC110  what is waited for is in a store or on a disk
                await anyio.sleep(0.02)

    async def until(self, key: str, *statuses: Status) -> Task:
        async def there() -> bool:
            return (await self.task(key)).status in statuses

        try:
            await self.eventually(there)
        except TimeoutError:
            task = await self.task(key)
            raise AssertionError(
                f"{key} is {task.status}, not {statuses}: {task.hold} {task.error_message} {await self.kinds(key)}"
            ) from None
        return await self.task(key)
