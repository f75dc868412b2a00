"""An order to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from codefleet.ports import Order
from codefleet.testing.drivers import first_order


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return first_order(tmp_path)
