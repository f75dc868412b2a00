"""Shipped for tests: contract suites, fakes, fault injection, a scripted model server."""
