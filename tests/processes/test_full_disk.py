"""A full disk: nothing begins that could not be kept, and what runs is accounted for."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from codefleet.core.errors import NoSpace
from codefleet.ports import ChildState
from codefleet.processes.spools import Spools
from codefleet.testing.processes.children import DEADLINE, kill, line_of, printed, shell, until


def size(path: Path) -> int:
    return path.stat().st_size


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


async def test_without_room_nothing_runs_and_nothing_is_left(processes: Spools, disk: Path, tmp_path: Path) -> None:
    ballast = fill(disk)
    spool = disk / "spool" / "01-agent"
    with pytest.raises(NoSpace, match=f"file system at {disk}"):
        await processes.start(spool, shell("touch ran", tmp_path))
    assert not spool.exists()
    assert not (tmp_path / "ran").exists()
    ballast.unlink()
    with anyio.fail_after(DEADLINE):
        child = await processes.start(spool, shell("touch ran; exit 7", tmp_path))
        assert (await child.wait()).code == 7


async def test_a_child_that_fills_the_disk_is_accounted_for(processes: Spools, disk: Path, tmp_path: Path) -> None:
    script = f"setsid sleep 600 & cat /dev/zero > {disk}/ballast; echo lost; exit 7"
    with anyio.fail_after(DEADLINE):
        child = await processes.start(disk / "spool", shell(script, tmp_path))
        status = await child.wait()
    assert (status.state, status.code) == (ChildState.DONE, 7)
    assert status.swept == 1


async def test_a_guard_that_dies_on_a_full_disk_is_replaced(processes: Spools, disk: Path, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        child = await processes.start(disk / "spool", shell("read x; exit 7", tmp_path, stdin="queue"))
        ballast = fill(disk)
        first = child.status().guard
        kill(first)
        async with anyio.create_task_group() as group:
            group.start_soon(child.wait)
            await until(lambda: child.status().guard != first)
            ballast.unlink()
            await child.send(b"go")
    assert child.status().code == 7


async def test_a_line_that_does_not_fit_is_not_queued_at_all(processes: Spools, disk: Path, tmp_path: Path) -> None:
    script = 'while read -r line; do echo "got $line"; [ "$line" = end ] && exit 7; done'
    with anyio.fail_after(DEADLINE):
        child = await processes.start(disk / "spool", shell(script, tmp_path, stdin="queue"))
        await child.send(b"one")
        await line_of(child, b"got one")
        ballast = fill(disk)
        with pytest.raises(NoSpace):
            await child.send(b"x" * 10_000)
        ballast.unlink()
        await child.send(b"end")
        assert (await child.wait()).code == 7
    assert await printed(child) == [b"got one", b"got end"]
    assert size(child.spool / "in") == len(b"one\nend\n")
