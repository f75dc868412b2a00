"""What an engine is made of. The composition root fills it; tests fill it with fakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codefleet.core.layout import Home
from codefleet.ports import Clock, Configuration, Drivers, Presence, Processes, Store, Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    home: Home
    home_id: str
    host: str
    store: Store
    processes: Processes
    presence: Presence
    workspaces: Workspaces
    drivers: Drivers
    configuration: Configuration
    clock: Clock
    environ: Mapping[str, str]
    """Of the process that the engine runs in; children get of it what they are allowed."""
