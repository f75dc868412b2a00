"""kill -9 of git, or of us, at any instant: the next call finds its way, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from codefleet.core.errors import GitError
from codefleet.ports import Workspace
from codefleet.testing.workspaces import Ground, a_repository, isolate_git, settled, write
from codefleet.workspaces import GitWorkspaces

T = TypeVar("T")

pytestmark = pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="children are found through /proc"
)

PROGRAM = """
import sys, anyio
from pathlib import Path
from codefleet.ports import WorkspaceOrder
from codefleet.workspaces import GitWorkspaces

async def main(repository, path, step):
    order = WorkspaceOrder(
        repository=Path(repository), task_id="t1", number=1, branch="stub/do-it/t1", target="main", path=Path(path)
    )
    workspaces = GitWorkspaces(Path(path).parent / "quarantine")
    print("ready", flush=True)
    where = await workspaces.prepare(order)
    if step == "settle":
        await workspaces.settle(where, task_id="t1", number=1, title="Do it")
    if step == "release":
        await workspaces.release(where, task_id="t1")

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    isolate_git(monkeypatch, tmp_path / "gitconfig")
    return a_repository(tmp_path / "ground", {f"d{n % 7}/file{n}": f"{n}\n" * 50 for n in range(60)})


@pytest.fixture
def workspaces(tmp_path: Path) -> GitWorkspaces:
    return GitWorkspaces(tmp_path / "quarantine")


def _children(parent: int) -> list[int]:
    """The gits that a process has started, and those that these started."""
    found: list[int] = []
    with suppress(OSError):
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return [child for each in found for child in (each, *_children(each)) if _is_git(child)]


def _is_git(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("git")
    except OSError:
        return False


@contextmanager
def _killer(seed: int) -> Iterator[list[int]]:
    """While it is open, some git of ours is killed every few milliseconds; gives the list of the killed."""
    luck, over, killed = random.Random(seed), threading.Event(), list[int]()

    def hunt() -> None:
        while not over.wait(luck.uniform(0.001, 0.03)):
            found = _children(os.getpid())
            if found:
                victim = luck.choice(found)
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

    thread = threading.Thread(target=hunt)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


async def _under_fire(seed: int, work: Callable[[], Awaitable[T]], shots: int) -> T:
    """Call again and again while gits die, until enough have died; then once in peace."""
    with anyio.fail_after(60):
        with _killer(seed) as killed:
            for _ in range(200):
                with suppress(GitError):
                    await work()
                if len(killed) >= shots:
                    break
        return await work()


def _is_whole(ground: Ground, where: Workspace) -> None:
    assert ground.git("branch", "--show-current", cwd=where.path) == where.branch
    assert len(ground.git("worktree", "list").splitlines()) <= 2
    ground.git("fsck", "--connectivity-only")


@pytest.mark.parametrize("seed", range(2))
async def test_git_killed_while_preparing(ground: Ground, workspaces: GitWorkspaces, seed: int) -> None:
    tries = iter(range(1, 1000))

    async def prepare() -> Workspace:
        """Each try is a new task, so that every instant of making a worktree is hit; the last one is looked at."""
        return await workspaces.prepare(ground.order(f"t{next(tries) // 3}"))

    where = await _under_fire(seed, prepare, shots=6)
    assert ground.dirt(where.path) == ""
    assert len(ground.names("HEAD")) == 60
    assert ground.git("branch", "--show-current", cwd=where.path) == where.branch
    for entry in ground.worktrees.iterdir():
        again = await workspaces.prepare(ground.order(entry.name.removeprefix("stub-do-it-")))
        assert ground.dirt(again.path) == ""
    ground.git("fsck", "--connectivity-only")


@pytest.mark.parametrize("seed", range(2))
async def test_git_killed_while_settling(ground: Ground, workspaces: GitWorkspaces, seed: int) -> None:
    where = await workspaces.prepare(ground.order())
    files = {f"new{n}": f"{n}\n" for n in range(30)}
    write(where.path, {**files, "d1/file1": "changed\n", "d2/file2": None})
    made = await _under_fire(seed, lambda: settled(workspaces, where), shots=3)
    assert len(made.files) == 32
    assert len(made.commits) == 1
    assert made.head == ground.ref(where.branch) == ground.ref("refs/codefleet/heads/t1/1")
    assert ground.dirt(where.path) == ""
    _is_whole(ground, where)


@pytest.mark.parametrize("seed", range(1))
async def test_git_killed_while_salvaging(ground: Ground, workspaces: GitWorkspaces, seed: int) -> None:
    where = await workspaces.prepare(ground.order())
    write(where.path, {"new": "1\n", "d1/file1": "changed\n", "d2/file2": None})
    dirt = ground.dirt(where.path)
    kept = await _under_fire(seed, lambda: workspaces.salvage(where, task_id="t1", number=1), shots=3)
    assert kept is not None
    assert ground.git("show", f"{kept.commit}:d1/file1") == "changed"
    assert ground.dirt(where.path) == dirt
    assert not list((ground.path / ".git" / "worktrees" / where.path.name).glob("codefleet-index*"))


@pytest.mark.parametrize("seed", range(1))
async def test_git_killed_in_a_proof(ground: Ground, workspaces: GitWorkspaces, seed: int) -> None:
    place, one = ground.worktrees / ".proof-1", ground.ref("main")
    two = ground.commit({f"d{n % 7}/file{n}": f"changed {n}\n" for n in range(40)})
    heads = cycle([one, two])

    async def proof() -> str:
        head = next(heads)
        await workspaces.proof(ground.path, place, head, [])
        write(place, {"stray": "1\n", "d1/file1": "changed by a gate\n"})
        return head

    await _under_fire(seed, proof, shots=4)
    await workspaces.proof(ground.path, place, head := next(heads), [])
    assert ground.git("rev-parse", "HEAD", cwd=place) == head
    assert ground.dirt(place) == ""


@pytest.mark.parametrize("seed", range(2))
async def test_git_killed_while_releasing(ground: Ground, workspaces: GitWorkspaces, seed: int) -> None:
    tries = iter(range(1, 1000))

    async def release() -> str:
        task = f"t{next(tries) // 3}"
        where = await workspaces.prepare(ground.order(task))
        return await workspaces.release(where, task_id=task)

    assert await _under_fire(seed, release, shots=6) == ""


@pytest.mark.parametrize("step", ["prepare", "settle", "release"])
async def test_the_engine_killed_at_any_instant(ground: Ground, workspaces: GitWorkspaces, step: str) -> None:
    order = ground.order()
    luck = random.Random(step)
    if step != "prepare":
        where = await workspaces.prepare(order)
        write(where.path, {"new": "1\n", "d2/file2": None})
    if step == "release":
        await settled(workspaces, where)
    for _ in range(3):
        _killed_in(luck, [str(ground.path), str(order.path), step])
    with anyio.fail_after(60):
        where = await workspaces.prepare(order)
        write(where.path, {"last": "1\n"})
        made = await settled(workspaces, where)
    new = ["last"] if step == "prepare" else ["d2/file2", "last", "new"]
    assert [file.path for file in made.files] == new
    _is_whole(ground, where)


def _killed_in(luck: random.Random, args: list[str]) -> None:
    """Run the program and kill it some milliseconds after it began its work; its git may live on for a moment."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        time.sleep(luck.uniform(0, 0.06))
    finally:
        program.kill()
        program.communicate()
