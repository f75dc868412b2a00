"""All benchmarks, or those that are named, one after another; what they found as one file with `--json`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LINUX = {"idle", "processes"}
"""These measure through /proc and descriptors of processes."""
NAMES = sorted(file.stem for file in HERE.glob("[a-z]*.py"))


def run(name: str, found: Path) -> int:
    print(f"\n== {name}", flush=True)
    return subprocess.run([sys.executable, str(HERE / f"{name}.py"), "--json", str(found)], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {' '.join(NAMES)}")
    parser.add_argument("--json", default="", metavar="FILE")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no benchmark {' '.join(sorted(unknown))}; there are: {' '.join(NAMES)}")
    elsewhere = set() if sys.platform == "linux" else LINUX
    if impossible := elsewhere & set(given.names):
        parser.error(f"only Linux can measure {' '.join(sorted(impossible))}")
    with tempfile.TemporaryDirectory() as place:
        files = {name: Path(place, f"{name}.json") for name in given.names or NAMES if name not in elsewhere}
        codes = [run(name, file) for name, file in files.items()]
        documents = [json.loads(file.read_text()) for file in files.values() if file.exists()]
    if given.json:
        Path(given.json).write_text(json.dumps(documents, indent=2) + "\n")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
