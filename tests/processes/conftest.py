"""The contract suite is read with explained assertions, like tests; and spools that are open."""

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite("codefleet.testing.processes.contract", "codefleet.testing.processes.faults")

from codefleet.ports import SystemClock  # noqa: E402 - after the line above
from codefleet.processes.spools import Spools  # noqa: E402


@pytest.fixture
async def processes() -> AsyncIterator[Spools]:
    spools = Spools(SystemClock(), patience=0.2)
    await spools.open()
    yield spools
    await spools.close()
