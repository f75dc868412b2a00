"""What a workspace costs beside plain git.

one    prepare, write a file, settle  ·  `git worktree add -b`, write a file, `git add -A`, `git commit`
large  the same in a repository of many files
wide   16 of them at once  ·  the same by plain git, whose worktrees are added one at a time
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from codefleet.ports import WorkspaceOrder
from codefleet.workspaces import GitWorkspaces

sys.path.insert(0, str(Path(__file__).parent))
from _figures import Figure, in_turn, main, scratch

MOST = 1.3
WIDE = 16
FLOOR = "git worktree add, add, commit"
ONE_AT_A_TIME = threading.Lock()
"""Two `git worktree add` at once in one repository fail now and then."""


def git(cwd: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True)


def made(path: Path, files: int) -> Path:
    """A repository with so many small files."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    git(path, "config", "user.name", "Bench")
    git(path, "config", "user.email", "bench@example.org")
    for n in range(files):
        file = path / f"d{n % 50}" / f"file{n}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{n}\n" * 20)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


@dataclass(frozen=True)
class Side:
    """One repository with the two ways to work in it."""

    repository: Path
    root: Path
    workspaces: GitWorkspaces
    portal: BlockingPortal
    numbers: count[int]

    def plain(self) -> None:
        key = f"p{next(self.numbers)}"
        place = self.root / key
        with ONE_AT_A_TIME:
            git(self.repository, "worktree", "add", "-q", "-b", f"plain/{key}", str(place), "main")
        (place / "work.txt").write_text("done\n")
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", "work")

    async def _ours(self) -> None:
        key = f"o{next(self.numbers)}"
        order = WorkspaceOrder(
            repository=self.repository,
            task_id=key,
            number=1,
            branch=f"ours/{key}",
            target="main",
            path=self.root / key,
        )
        where = await self.workspaces.prepare(order)
        (where.path / "work.txt").write_text("done\n")
        changes = await self.workspaces.settle(where, task_id=key, number=1, title="work")
        assert len(changes.files) == 1

    def ours(self) -> None:
        self.portal.call(self._ours)

    def plain_wide(self) -> None:
        with ThreadPoolExecutor(WIDE) as pool:
            for done in [pool.submit(self.plain) for _ in range(WIDE)]:
                done.result()

    async def _ours_wide(self) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(WIDE):
                group.start_soon(self._ours)

    def ours_wide(self) -> None:
        self.portal.call(self._ours_wide)


def beside(name: str, ours: Callable[[], None], plain: Callable[[], None], rounds: int, limit: float) -> Figure:
    taken = in_turn({"ours": ours, "plain": plain}, rounds)
    return Figure(
        name=name,
        value=taken["ours"] * 1000,
        floor=taken["plain"] * 1000,
        unit="ms",
        floor_name=FLOOR,
        limit=limit,
    )


def measure(given: argparse.Namespace) -> Sequence[Figure]:
    with scratch() as folder, start_blocking_portal() as portal:
        top = Path(folder).resolve()
        workspaces = GitWorkspaces(top / "quarantine")

        def side(name: str, files: int) -> Side:
            return Side(made(top / name / "project", files), top / name / "worktrees", workspaces, portal, count())

        small, large = side("small", 100), side("large", given.files)
        return [
            beside("prepare + settle, 100 files", small.ours, small.plain, given.rounds, MOST),
            beside(f"prepare + settle, {given.files} files", large.ours, large.plain, max(3, given.rounds // 6), MOST),
            beside(f"{WIDE} at once, 100 files", small.ours_wide, small.plain_wide, max(3, given.rounds // 6), MOST),
        ]


if __name__ == "__main__":
    main("workspaces", measure, rounds=30, files=5000)
