"""Adapters for coding agents."""
