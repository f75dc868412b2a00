"""The command line. Only what every command needs is imported here; each command imports what it uses."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of `codefleet`, `fleet` and `flt`."""
    from codefleet.cli.running import run

    sys.exit(run(sys.argv[1:]))
