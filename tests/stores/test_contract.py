"""Both stores keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from codefleet.ports import SystemClock
from codefleet.stores.memory import MemoryStore
from codefleet.testing.stores import Factory, StoreContract, embedded


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store_factory(self) -> Factory:
        store = MemoryStore(SystemClock())
        return lambda: store


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> Factory:
        return lambda: embedded(tmp_path)
