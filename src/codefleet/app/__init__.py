"""The composition root: settings, store and adapters made into a `Fleet`, the façade that all surfaces use.

What is asked for is loaded then: `status` and the help answer without the rest.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codefleet.app.answers import Added, Place
    from codefleet.app.fleet import Fleet
    from codefleet.app.opening import open_fleet

__all__ = ["Added", "Fleet", "Place", "open_fleet"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from codefleet.app import fleet, opening

    return opening.open_fleet if name == "open_fleet" else getattr(fleet, name)
