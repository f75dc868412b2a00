"""One backlog, worked off while parties die; then it is examined."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from codefleet.app import Fleet, open_fleet
from codefleet.core.drafts import Draft
from codefleet.testing.torture import parties
from codefleet.testing.torture import world as worlds
from codefleet.testing.torture.parties import Process, process
from codefleet.testing.torture.world import KINDS, World, program

DEADLINE = 60.0
"""Seconds that a life may take: it only guards against hanging."""
ADDING = 0.4
"""Seconds in which `codefleet add` is killed, if it has not ended."""
APPEARS = 4.0
"""Seconds to wait until a party is there to be killed."""


@dataclass(frozen=True, slots=True)
class Blow:
    """Kill this party so long after the last one died; or, with a call, the engine kills itself at that store call."""

    party: str
    after: float = 0.0
    fault: str = ""


@dataclass(slots=True)
class Life:
    world: World
    seed: str
    blows: Sequence[Blow]
    killed: list[tuple[str, Process]] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    """Tasks whose `add` was acknowledged."""
    starts: int = 0
    ended: bool = False
    """The engine ended by itself, with nothing left to do."""
    code: int | None = None
    _late: bool = False
    """A task was added while the engine worked."""

    def live(self) -> None:
        """Give work, kill, start again, until the engine says that there is nothing left."""
        rng = random.Random(self.seed)  # noqa: S311  it shall be repeatable
        anyio.run(self._give_work, rng)
        fault = next((blow.fault for blow in self.blows if blow.fault), "")
        engine = self._start(fault)
        deadline = time.monotonic() + DEADLINE
        blows = [blow for blow in self.blows if not blow.fault]
        while time.monotonic() < deadline:
            if blows and engine.poll() is None:
                self._strike(blows.pop(0), engine, rng)
                continue
            try:
                code = engine.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
            if code == -signal.SIGKILL:
                self._count_own_death(engine, fault)
                fault = ""
                engine = self._start("")
                continue
            if self._late:  # added when the engine may have been about to end
                self._late = False
                engine = self._start("")
                continue
            self.ended, self.code = True, code
            return
        engine.kill()
        engine.wait()

    def _count_own_death(self, engine: subprocess.Popen[bytes], fault: str) -> None:
        if fault and not any(name == "engine" and one.pid == engine.pid for name, one in self.killed):
            self.killed.append(("store call", Process(engine.pid, 0)))

    # -------------------------------------------------------------------------------------------------- work

    async def _give_work(self, rng: random.Random) -> None:
        world = self.world
        async with open_fleet(world.home, environ=world.environ, cwd=world.repository) as fleet:
            for kind in ("plain", *rng.sample(KINDS, 2)):
                await self._add(fleet, kind, rng)
            await self._add(fleet, "plain", rng, rng.sample(self.tasks, 2))

    async def _add(self, fleet: Fleet, kind: str, rng: random.Random, after: Sequence[str] = ()) -> None:
        draft = Draft(
            title=f"Be {kind}",
            description=worlds.script(self.world, kind, rng),
            priority=rng.randint(1, 5),
            depends_on=tuple(after),
        )
        self.tasks.append((await fleet.add(draft)).task.id)

    def _add_and_die(self, rng: random.Random) -> None:
        """Kill `codefleet add` at some instant: what it printed was acknowledged."""
        argv = [*program(), "add", "Be plain", "-d", worlds.script(self.world, "plain", rng), "--json", "-q"]
        adding = subprocess.Popen(
            argv, cwd=self.world.repository, env=self.world.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with adding:
            try:
                printed = adding.communicate(timeout=rng.uniform(0, ADDING))[0]
            except subprocess.TimeoutExpired:
                if process(adding.pid).kill():
                    self.killed.append(("add", Process(adding.pid, 0)))
                printed = adding.communicate()[0]
        if printed:
            self._late = True
            self.tasks.append(worlds.key_of(printed.decode()))

    # ---------------------------------------------------------------------------------------------- processes

    def _start(self, fault: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        faulty = [sys.executable, "-m", "codefleet.testing.engine_with_faults", "2"]
        argv = faulty if fault else [*program(), "start", "-n", "2", "--until-idle"]
        environ = {**self.world.environ, **({"CODEFLEET_FAULT": fault} if fault else {})}
        with (self.world.path / "engine.log").open("ab") as log:
            return subprocess.Popen(
                argv,
                cwd=self.world.repository,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _strike(self, blow: Blow, engine: subprocess.Popen[bytes], rng: random.Random) -> None:
        """Wait, find the party, kill it. A party that does not appear any more is spared."""
        self._pause(blow.after, engine)
        if blow.party == "add":
            self._add_and_die(rng)
            return
        until = time.monotonic() + APPEARS
        while time.monotonic() < until and engine.poll() is None:
            found = [one for one in parties.find(self.world, blow.party, engine.pid) if one.alive]
            if found:
                victim = rng.choice(found)
                if victim.kill():
                    self.killed.append((blow.party, victim))
                    return
            time.sleep(0.002)

    def _pause(self, seconds: float, engine: subprocess.Popen[bytes]) -> None:
        try:
            engine.wait(seconds)
        except subprocess.TimeoutExpired:
            return
