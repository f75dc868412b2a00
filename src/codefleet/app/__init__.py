"""The composition root: settings, store and adapters made into a `Fleet`, the façade that all surfaces use."""

from codefleet.app.fleet import Added, Fleet, Place, open_fleet

__all__ = ["Added", "Fleet", "Place", "open_fleet"]
