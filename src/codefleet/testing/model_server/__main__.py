"""`python -m codefleet.testing.model_server --script FILE --port 0` serves a script and prints where."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from codefleet.testing.model_server.script import load
from codefleet.testing.model_server.server import ModelServer


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="model_server", description="A scripted model. GET / lists the requests so far."
    )
    parser.add_argument(
        "--script", type=Path, required=True, help="JSON, as codefleet.testing.model_server.script says"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    given = parser.parse_args()
    ended = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: ended.set())
    with ModelServer(load(given.script), port=given.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    main()
