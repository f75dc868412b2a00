"""One agent's child of a run: what it was told, what it said, what that means so far."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec

from codefleet.core.errors import StoreError
from codefleet.core.model import ACTIVITY_KINDS, Activity
from codefleet.core.progress import Event, Progress, fold
from codefleet.engine import files
from codefleet.engine.bell import Bell
from codefleet.engine.scrub import Scrubber
from codefleet.ports import Child, Clock, Driver, Line, Store

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""Activity that is kept in memory while the store takes none; telemetry may be lost, memory may not grow."""
GATHER = 0.1
"""Seconds in which activity is gathered into one write."""
PAUSE = 1.0
"""Seconds before a store that would not take activity is asked again."""
MOST_TEXT = 16 << 10


class Told(msgspec.Struct, frozen=True):
    """A message that was given to a child in some round."""

    round: int
    uuid: str = ""
    line: str = ""


class Said(msgspec.Struct, frozen=True):
    """All that a child was given, kept on disk before it is given: what a next engine must say again is the same."""

    resume: bool = False
    told: tuple[Told, ...] = ()

    @property
    def rounds(self) -> frozenset[int]:
        return frozenset(one.round for one in self.told)

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(one.uuid for one in self.told if one.uuid)


def number_of(spool: str) -> int:
    """The place of a spool in its run: `03-agent` is 3."""
    return int(spool.partition("-")[0])


def position(spool: str, offset: int, part: int) -> int:
    """The number of an activity: in order within its run and the same whenever its line is read again."""
    return number_of(spool) << 44 | offset << 6 | min(part, 63)


class Talk:
    """Start with `listen` in a task group; `bell` rings whenever there is something new to know."""

    def __init__(self, run: str, name: str, child: Child, driver: Driver, said: Said, bell: Bell) -> None:
        self.run = run
        self.name = name
        self.child = child
        self.driver = driver
        self.said = said
        self.progress = Progress()
        self.heard_all = False
        """The child has ended and all that it said was read."""
        self._bell = bell
        self._activity: list[Activity] = []
        self._more = Bell()

    @property
    def turn_is_over(self) -> bool:
        """Has the agent ended its turn on everything that it was told, by the protocol's word?"""
        state = self.progress
        taken = self.said.uuids <= state.taken
        return self.driver.capabilities.live and state.turns > 0 and taken and not state.pending_turn

    @property
    def is_over(self) -> bool:
        """Is there nothing to wait for any more?"""
        return self.heard_all or self.turn_is_over

    @property
    def alive(self) -> bool:
        return not self.heard_all

    async def listen(self, store: Store, clock: Clock, scrub: Scrubber, root: str) -> None:
        """Read, fold and record until the child has ended, and see to it that it has a guard. Files under `root`, the
        workspace, are named from there."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._record, store)
            group.start_soon(self.child.wait)
            async for line in self.child.lines():
                self._take(line, clock, scrub, root)
            self.heard_all = True
            self._more.ring()
            self._bell.ring()

    def _take(self, line: Line, clock: Clock, scrub: Scrubber, root: str) -> None:
        events = [Event(event.kind, scrub.data(event.data)) for event in self.driver.parse(line.data)]
        for part, event in enumerate(events):
            if not self._is_taken_before(event):
                self.progress = fold(self.progress, event)
            if event.kind in ACTIVITY_KINDS:
                self._note(_named_from(root, event), position(self.name, line.offset, part), clock.now())
        if any(event.kind in {"turn_ended", "message_taken"} for event in events):
            self._bell.ring()

    def _is_taken_before(self, event: Event) -> bool:
        """What is said again is acknowledged again, and begins no turn."""
        return event.kind == "message_taken" and event.data.get("uuid") in self.progress.taken

    def _note(self, event: Event, n: int, now: int) -> None:
        if len(self._activity) < MOST_WAITING:
            self._activity.append(Activity(run=self.run, n=n, at=now, kind=event.kind, data=_cut(event.data)))
        self._more.ring()

    async def _record(self, store: Store) -> None:
        """Write activity a batch at a time; what was recorded before is known by its number."""
        while not (self.heard_all and not self._activity):
            await self._more.wait()
            if not self.heard_all:
                await anyio.sleep(GATHER)
            if not await self.record(store):
                await anyio.sleep(PAUSE)

    async def record(self, store: Store) -> bool:
        """Write what is not written yet; False when the store would not take it now."""
        batch, self._activity = self._activity, []
        try:
            if batch:
                await store.log(batch)
        except StoreError as error:
            log.warning("activity_waits", extra={"run": self.run, "error": error.message})
            self._activity = batch + self._activity
            self._more.ring()
            return False
        except anyio.get_cancelled_exc_class():
            self._activity = batch + self._activity
            raise
        return True

    def keep_in_mind(self, path: Path, round_: int, text: str, uuid: str) -> None:
        """A further message to a live session: kept first, given by `say_again`."""
        told = Told(round=round_, uuid=uuid, line=self.driver.encode(text, uuid).decode())
        said = msgspec.structs.replace(self.said, told=(*self.said.told, told))
        keep(path, said)
        self.said = said

    async def say_again(self) -> None:
        """Give everything once more; what the child has is not given twice."""
        for one in self.said.told:
            if one.line:
                await self.child.send(one.line.encode())


def _named_from(root: str, event: Event) -> Event:
    path = event.data.get("path")
    if event.kind != "file_changed" or not isinstance(path, str) or not path.startswith(f"{root}/"):
        return event
    return replace(event, data={**event.data, "path": path[len(root) + 1 :]})


def keep(path: Path, said: Said) -> None:
    """Write what a child is told to disk, before it is told."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.write(path, msgspec.json.encode(said))


def kept(path: Path) -> Said | None:
    """What a child was told; None when nothing was kept."""
    data = files.read(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Said)
    except msgspec.MsgspecError:
        return None


def _cut(data: dict[str, Any]) -> dict[str, Any]:
    """Long texts cut; the whole stays in the spool."""
    if len(json.dumps(data, default=str)) <= MOST_TEXT:
        return data
    short = {key: value[:MOST_TEXT] if isinstance(value, str) else value for key, value in data.items()}
    return (
        short
        if len(json.dumps(short, default=str)) <= 2 * MOST_TEXT
        else {"text": json.dumps(data, default=str)[:MOST_TEXT]}
    )
