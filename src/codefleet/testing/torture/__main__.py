"""python -m codefleet.testing.torture [N] [--seed S]: kill at N points, and say what was lost."""

from __future__ import annotations

import json
import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from math import gcd
from pathlib import Path
from typing import Any

import click

from codefleet.testing.torture import parties, truth
from codefleet.testing.torture import world as worlds
from codefleet.testing.torture.life import Blow, Life
from codefleet.testing.torture.parties import PARTIES

MOST_BROKEN = 4
"""So many worlds in which something broke are enough to look at."""
LIVES = 12
"""Lives in one world, whose store and repository grow with them."""
CALLS = 340
"""Store calls of an engine's life that are gone through in turn, before and after each."""
BLOWS = 3
"""Parties killed in one life."""
SPREAD = 1.2
"""Seconds: a blow falls at most so long after the one before."""


@dataclass(slots=True)
class Tally:
    """What came of all lives so far."""

    aim: int
    seed: str
    begun: float = field(default_factory=time.monotonic)
    points: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    starts: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    """Worlds in which something broke, left for whoever looks for the cause."""

    @property
    def landed(self) -> int:
        return sum(self.points.values())

    def count(self, life: Life, found: Mapping[str, Sequence[str]]) -> None:
        self.lives += 1
        self.starts += life.starts
        self.points.update(name for name, _ in life.killed)
        for name, seen in found.items():
            self.broken.setdefault(name, []).extend(f"[{life.seed}] {text}" for text in seen)

    def document(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "points": dict(sorted(self.points.items())),
            "lives": self.lives,
            "starts": self.starts,
            "seconds": round(time.monotonic() - self.begun, 1),
            "broken": {name: len(seen) for name, seen in self.broken.items()},
        }


def planned(aim: int, seed: str, only: str = "") -> Iterator[tuple[str, Sequence[Blow]]]:
    """Lives without end, each with its seed and its blows: of five, three end at a store call and two are struck."""
    rng = random.Random(seed)  # noqa: S311  it shall be repeatable
    turns = 2 * CALLS
    even = max(1, turns * 3 // max(1, aim))
    stride = next(
        step for step in count(even) if gcd(step, turns) == 1
    )  # so that every turn comes before one comes again
    turn = rng.randrange(turns)
    number = 0
    while True:
        for _ in range(0 if only else 3):
            when = ("before", "after")[turn % 2]
            yield f"{seed}/{number}", [Blow("engine", fault=f"kill:{when}:{1 + turn // 2}")]
            turn, number = (turn + stride) % turns, number + 1
        for _ in range(2):
            blows = [Blow(only or rng.choice(PARTIES), after=rng.uniform(0, SPREAD)) for _ in range(BLOWS)]
            yield f"{seed}/{number}", blows
            number += 1


class Torture:
    def __init__(self, aim: int, seed: str, folder: Path, only: str) -> None:
        self.tally = Tally(aim, seed)
        self._folder = folder
        self._plan = planned(aim, seed, only)
        self._worlds = 0
        self._lock = threading.Lock()

    def work(self) -> None:
        """One worker: world after world, life after life, until enough has been killed."""
        while not self._enough():
            with self._lock:
                self._worlds += 1
                path = self._folder / f"world-{self._worlds}"
            self._inhabit(path)

    def _enough(self) -> bool:
        return self.tally.landed >= self.tally.aim or len(self.tally.kept) >= MOST_BROKEN

    def _inhabit(self, path: Path) -> None:
        world = worlds.make(path)
        for _ in range(LIVES):
            with self._lock:
                if self._enough():
                    break
                seed, blows = next(self._plan)
            life = Life(world, seed, blows)
            life.live()
            found = truth.examine(life)
            with self._lock:
                self.tally.count(life, found)
                self._say(life, found)
            if any(found.values()):
                self.tally.kept.append(str(path))
                parties.end(world)
                return
        shutil.rmtree(path)

    def _say(self, life: Life, found: Mapping[str, Sequence[str]]) -> None:
        wrong = [f"{name}: {text}" for name, seen in found.items() for text in seen]
        for line in wrong:
            click.echo(f"BROKEN {line}", err=True)
        if wrong:
            click.echo(
                f"       seed {life.seed}, killed: {', '.join(f'{name} {one.pid}' for name, one in life.killed)}",
                err=True,
            )
        if self.tally.lives % 5 == 0:
            click.echo(f"{self.tally.landed} of {self.tally.aim} points", err=True)


@click.command(help=__doc__)
@click.argument("points", type=click.IntRange(1), default=60)
@click.option("--seed", default="", help="Repeat the choices of an earlier torture.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Worlds at a time.")
@click.option("--only", type=click.Choice(PARTIES), default=None, help="Kill nobody else.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the figures there, too.")
def main(points: int, seed: str, jobs: int, only: str | None, file: Path | None) -> None:
    if sys.platform != "linux":
        raise click.ClickException("the torture finds whom to kill through /proc: it runs on Linux alone")
    folder = Path(tempfile.mkdtemp(prefix="codefleet-torture-"))
    torture = Torture(points, seed or secrets.token_hex(4), folder, only or "")
    with ThreadPoolExecutor(jobs) as pool:
        for worker in [pool.submit(torture.work) for _ in range(jobs)]:
            worker.result()
    tally = torture.tally
    if file:
        file.write_text(json.dumps(tally.document(), indent=2) + "\n")
    _print(tally)
    if tally.kept:
        click.echo(f"left to look at: {' '.join(sorted(set(tally.kept)))}")
    else:
        shutil.rmtree(folder)
    sys.exit(int(bool(tally.kept)))


def _print(tally: Tally) -> None:
    click.echo(f"{'killed':<18} {'points':>6}")
    for name, number in sorted(tally.points.items()):
        click.echo(f"{name:<18} {number:>6}")
    click.echo(f"\n{'promise':<18} {'broken':>6}")
    for name, seen in tally.broken.items():
        click.echo(f"{name:<18} {len(seen):>6}")
    spent = time.monotonic() - tally.begun
    click.echo(
        f"\n{tally.landed} points in {tally.lives} lives with {tally.starts} starts, {spent:.0f} s, seed {tally.seed}"
    )


if __name__ == "__main__":
    main()
