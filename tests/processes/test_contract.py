"""Spools keep the contract."""

from codefleet.testing.processes.contract import ProcessesContract


class TestSpools(ProcessesContract):
    pass
