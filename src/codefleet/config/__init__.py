"""What a person has configured: every key once, read from files and the environment with the origin of each value."""

from codefleet.config.configured import Configured, Resolved

__all__ = ["Configured", "Resolved"]
