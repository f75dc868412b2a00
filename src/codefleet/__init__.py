"""CodeFleet: command a fleet of AI coding agents on real repositories."""

__version__ = "0.1.0"
