"""`python -m codefleet` is the command line."""

from codefleet.cli import main

main()
