"""Figures beside their floors: measured in turn, shown as a table, written as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One thing measured. The limit is on its ratio to the floor, or on itself where it has no floor."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    floor_name: str = ""
    limit: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None

    @property
    def kept(self) -> bool | None:
        if self.limit is None:
            return None
        return (self.ratio if self.ratio is not None else self.value) <= self.limit

    def document(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio, "kept": self.kept}


def main(name: str, measure: Callable[[argparse.Namespace], Sequence[Figure]], **options: int) -> None:
    """Parse `--json PATH` and the benchmark's own numbers, measure, show; exit 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--json", default="", metavar="PATH")
    for option, default in options.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=int, default=default)
    given = parser.parse_args()
    figures = measure(given)
    print(table(figures))
    if given.json:
        about = {
            "benchmark": name,
            "python": platform.python_version(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
        }
        Path(given.json).write_text(
            json.dumps({**about, "figures": [one.document() for one in figures]}, indent=2) + "\n"
        )
    sys.exit(0 if all(one.kept is not False for one in figures) else 1)


def table(figures: Sequence[Figure]) -> str:
    head = ("figure", "value", "floor", "ratio", "limit", "")
    rows = [head, *map(_row, figures)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    return "\n".join("  ".join(_cell(n, text, widths[n]) for n, text in enumerate(row)).rstrip() for row in rows)


def _cell(n: int, text: str, width: int) -> str:
    return text.ljust(width) if n in {0, 5} else text.rjust(width)


def _row(one: Figure) -> tuple[str, ...]:
    floor = "" if one.floor is None else f"{one.floor:.4g} {one.unit}"
    ratio = "" if one.ratio is None else f"{one.ratio:.2f} x"
    unit = f" {one.unit}" if one.floor is None else " x"
    limit = "" if one.limit is None else f"{one.limit:g}{unit}"
    kept = {None: "", True: "kept", False: "NOT KEPT"}[one.kept]
    return (
        one.name,
        f"{one.value:.4g} {one.unit}",
        floor,
        ratio,
        limit,
        f"{kept}  {one.floor_name and 'floor: ' + one.floor_name}".strip(),
    )


def in_turn(acts: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each act, all of them done in turn, so that a busy minute meets all alike."""
    for act in acts.values():
        act()
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            begun = time.perf_counter()
            act()
            taken[name].append(time.perf_counter() - begun)
    return {name: statistics.median(times) for name, times in taken.items()}


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes when the benchmark ends."""
    return tempfile.TemporaryDirectory(prefix="codefleet-bench-")


def clean_environ(folder: Path) -> dict[str, str]:
    """Our own environment with a home of its own, and with bytecode kept as an installed package has it."""
    dropped = ("CODEFLEET_", "FLEET_", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "CODEFLEET_HOME": str(folder / "home"), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
