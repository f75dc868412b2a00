"""An engine on the home of the environment, whose store does what `CODEFLEET_FAULT` says (see `faults.Fault`).

    CODEFLEET_FAULT=kill:after:17 python -m codefleet.testing.engine_with_faults [SLOTS]

It works until idle. The calls of the engine's own store count; with CODEFLEET_FAULT_CALLS=FILE their number is written there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio

from codefleet.app import homes
from codefleet.app.fleet import Fleet, open_fleet
from codefleet.drivers import Installed
from codefleet.engine.engine import Engine
from codefleet.engine.parts import Parts
from codefleet.processes.presence import FilePresence
from codefleet.processes.spools import Spools
from codefleet.testing.faults import Fault, FaultyStore


def parts_of(fleet: Fleet) -> Parts:
    return Parts(
        home=fleet.home,
        home_id=homes.make(fleet.home),
        host=fleet.host,
        store=fleet.store,
        processes=Spools(fleet.clock),
        presence=FilePresence(fleet.home),
        workspaces=fleet.workspaces,
        drivers=Installed(),
        configuration=fleet.configuration,
        clock=fleet.clock,
        environ=fleet.environ,
    )


async def work(environ: Mapping[str, str], slots: int) -> bool:
    """Until idle; False when a task failed."""
    text = environ.get("CODEFLEET_FAULT", "")
    async with open_fleet(homes.choose(environ), environ=environ, cwd=Path.cwd()) as fleet:
        store = FaultyStore(fleet.store, *([Fault.parse(text)] if text else []))
        parts = parts_of(replace(fleet, store=store))
        parts.presence.only()
        await parts.processes.open()
        try:
            return await Engine(parts, slots=slots, until_idle=True).run()
        finally:
            await parts.processes.close()
            if file := environ.get("CODEFLEET_FAULT_CALLS"):
                await anyio.Path(file).write_text(str(len(store.calls)))


if __name__ == "__main__":
    sys.exit(int(not anyio.run(work, os.environ, int((sys.argv[1:] or ["2"])[0]))))
