"""An engine put together from its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import anyio

from codefleet.app import homes
from codefleet.core.errors import InvalidInput
from codefleet.drivers import Installed
from codefleet.engine import log
from codefleet.engine.engine import Engine
from codefleet.engine.parts import Parts
from codefleet.engine.scrub import Scrubber
from codefleet.engine.scrub import of as scrubber_of
from codefleet.processes.spools import Spools

if TYPE_CHECKING:
    from codefleet.app.fleet import Fleet


@asynccontextmanager
async def engine(
    fleet: Fleet, *, slots: int, name: str, agent: str, workdir: Path | None, until_idle: bool
) -> AsyncIterator[Engine]:
    """As `Fleet.working` says. Children that still run when it is left go on under their guards."""
    place = (await fleet.workspaces.probe(workdir)).path if workdir else None
    if agent:
        await _refuse_unknown(fleet, agent, place)
    if not name:
        fleet.presence.only()
    processes = Spools(fleet.clock)
    await processes.open()
    try:
        made = Engine(
            parts(fleet, processes), slots=slots, name=name, agent=agent, workdir=place, until_idle=until_idle
        )
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await processes.close()


async def _refuse_unknown(fleet: Fleet, agent: str, place: Path | None) -> None:
    """An agent type must be the home's, or that of the project that it is asked for in."""
    known = set(fleet.configuration.home().agents)
    if agent not in known:
        here = place or (await fleet.workspaces.probe(fleet.cwd)).path
        project = await fleet.configuration.project(here)
        known.update(project.agents, project.agents_awaiting_trust)
    if agent not in known:
        raise InvalidInput(f"there is no agent type {agent!r}", hint=f"there are: {', '.join(sorted(known))}")


def parts(fleet: Fleet, processes: Spools) -> Parts:
    """What the engine is made of."""
    return Parts(
        home=fleet.home,
        home_id=homes.make(fleet.home),
        host=fleet.host,
        store=fleet.store,
        processes=processes,
        presence=fleet.presence,
        workspaces=fleet.workspaces,
        drivers=Installed(),
        configuration=fleet.configuration,
        clock=fleet.clock,
        environ=fleet.environ,
    )


@asynccontextmanager
async def logging(fleet: Fleet, terminal: TextIO | None) -> AsyncIterator[None]:
    """The home's log is written while the context lasts, on a terminal too if one is given."""
    settings = fleet.configuration.home()
    with log.opened(fleet.home, settings.log_level, scrubber=_scrubber(fleet), terminal=terminal):
        yield


def _scrubber(fleet: Fleet) -> Scrubber:
    kept = {name for agent in fleet.configuration.home().agents.values() for name in agent.keep}
    return scrubber_of(fleet.environ, kept)
