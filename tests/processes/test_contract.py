"""Spools keep the contract."""

from codefleet.testing.processes import ProcessesContract


class TestSpools(ProcessesContract):
    pass
