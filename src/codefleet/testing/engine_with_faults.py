"""An engine on the home of the environment, whose store does what `CODEFLEET_FAULT` says (see `faults.Fault`).

    CODEFLEET_FAULT=kill:after:17 python -m codefleet.testing.engine_with_faults [SLOTS]

It works until idle. The calls of the engine's store count; with CODEFLEET_FAULT_CALLS=FILE their number is written there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio

from codefleet.app import homes, open_fleet, work
from codefleet.core.layout import Home
from codefleet.testing.faults import Fault, FaultyStore


async def until_idle(environ: Mapping[str, str], slots: int) -> bool:
    """False when a task failed."""
    text = environ.get("CODEFLEET_FAULT", "")
    async with open_fleet(Home(homes.choose(environ)), environ=environ, cwd=Path.cwd()) as fleet:
        store = FaultyStore(fleet.store, *([Fault.parse(text)] if text else []))
        faulty = replace(fleet, store=store)
        try:
            async with (
                work.engine(faulty, slots=slots, name="", agent="", workdir=None, until_idle=True) as engine,
                work.logging(faulty, None),
            ):
                return await engine.run()
        finally:
            if file := environ.get("CODEFLEET_FAULT_CALLS"):
                await anyio.Path(file).write_text(str(len(store.calls)))


if __name__ == "__main__":
    sys.exit(int(not anyio.run(until_idle, os.environ, int((sys.argv[1:] or ["2"])[0]))))
