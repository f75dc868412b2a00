"""Both stores keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from codefleet.ports import SystemClock
from codefleet.stores.memory import MemoryStore
from codefleet.stores.sqlite import SqliteStore
from codefleet.testing.stores import Factory, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store_factory(self) -> Factory:
        store = MemoryStore(SystemClock())
        return lambda: store


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> Factory:
        def make() -> SqliteStore:
            wake, backups = tmp_path / "wake", tmp_path / "backups"
            return SqliteStore(tmp_path / "codefleet.db", wake=wake, backups=backups, clock=SystemClock())

        return make
