"""Every shipped driver keeps the contract."""

from __future__ import annotations

import pytest

from codefleet.core.settings import AgentType
from codefleet.drivers import Installed
from codefleet.ports import Driver
from codefleet.testing.drivers import DriverContract


class TestScripted(DriverContract):
    @pytest.fixture
    def driver(self) -> Driver:
        return Installed().driver("scripted", AgentType(driver="scripted"))


class TestCommand(DriverContract):
    @pytest.fixture
    def driver(self) -> Driver:
        return Installed().driver("stub", AgentType(driver="command", command=("my-agent", "{prompt}"), stdin="prompt"))


class TestClaude(DriverContract):
    @pytest.fixture
    def driver(self) -> Driver:
        return Installed().driver("claude", AgentType(driver="claude"))
