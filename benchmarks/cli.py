"""How long a command takes beside an interpreter that does nothing."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))
import _fleet
from _figures import Figure, clean_environ, in_turn, main, scratch

LIMITS = {"--help": 6.0, "status": 8.0}
OTHERS = ("tasks --all", "show {task}", "agent report --summary x")


async def _backlog(folder: Path, count: int) -> str:
    async with _fleet.fleet(folder) as fleet:
        return (await _fleet.loose(fleet, count))[0]


def command(words: list[str], environ: Mapping[str, str], cwd: Path) -> Callable[[], object]:
    def act() -> object:
        return subprocess.run(
            words, env=environ, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
        )

    return act


def measure(given: argparse.Namespace) -> list[Figure]:
    with scratch() as place:
        folder = Path(place)
        task = anyio.run(_backlog, folder, given.tasks)
        environ = {**clean_environ(folder), "CODEFLEET_ARTIFACT_DIR": place}
        program = str(Path(sys.executable).with_name("codefleet"))
        acts = {"pass": command([sys.executable, "-c", "pass"], environ, folder)}
        for words in (*LIMITS, *OTHERS):
            acts[words] = command([program, *words.format(task=task).split()], environ, folder / "repo")
        taken = in_turn(acts, given.rounds)
    floor = taken.pop("pass")
    return [
        Figure(
            name=f"codefleet {words}",
            value=seconds * 1000,
            floor=floor * 1000,
            unit="ms",
            floor_name="python -c pass",
            limit=LIMITS.get(words),
        )
        for words, seconds in taken.items()
    ]


if __name__ == "__main__":
    main("cli", measure, rounds=21, tasks=20)
