"""`version`."""

from __future__ import annotations

from codefleet import __version__
from codefleet.cli.frame import Frame, command


@command("version")
def version(frame: Frame) -> None:
    """Print the version."""
    frame.data({"version": __version__}, f"codefleet {__version__}")
