"""What the portable way promises, tried on Linux; `test_portable` runs this file in a process that is told to use it.

The contract as far as it holds, and that whoever is killed, nothing runs twice, no output is lost and no code is guessed.
"""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from codefleet.ports import Child, ChildState, SystemClock
from codefleet.processes.guard import kernel
from codefleet.processes.spools import Spools
from codefleet.testing.processes.children import (
    DEADLINE,
    FORK_CHAINS,
    alive,
    kill,
    line_of,
    printed,
    python,
    shell,
    until,
)
from codefleet.testing.processes.contract import ProcessesContract
from codefleet.testing.processes.faults import CODE, Owner, Witness, children, guards, nurseries

assert kernel.PORTABLE
ECHO = 'while read -r line; do echo "got $line"; [ "$line" = end ] && exit 7; done'


class TestPortable(ProcessesContract):
    pass


# --------------------------------------------------------------------------------------------------- what is left behind


async def test_what_left_the_session_ends_with_the_child_if_it_was_seen(processes: Spools, tmp_path: Path) -> None:
    """It leaves the group and shows no mark, but its parent was there at one look."""
    script = "env -i setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' & read x; exit 7"
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(script, tmp_path, stdin="queue"))
        daemon = int((await anext(aiter(child.lines()))).data)
        await until(lambda: f"{daemon}:".encode() in (child.spool / "status").read_bytes())
        await child.send(b"go")
        assert (await child.wait()).code == CODE
    assert not alive(daemon)


async def test_a_daemon_that_shows_the_mark_ends_with_the_child(processes: Spools, tmp_path: Path) -> None:
    script = "(setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' &) ; exit 7"
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(script, tmp_path))
        assert (await child.wait()).code == CODE
    for line in await printed(child):
        assert not alive(int(line))


async def test_what_forks_faster_than_one_can_look_ends_with_its_group(processes: Spools, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", python(FORK_CHAINS, tmp_path))
        await line_of(child, b"ready")
        assert (await child.stop(0)).state is ChildState.DONE


# ------------------------------------------------------------------------------------------------------- whoever is killed


@pytest.fixture
def spools(tmp_path: Path) -> list[Path]:
    (tmp_path / "spool").mkdir()
    return [tmp_path / "spool" / str(number) for number in range(4)]


async def start_all(processes: Spools, spools: Sequence[Path]) -> list[Child]:
    return [await processes.start(spool, Witness(spool).job()) for spool in spools]


async def hear_all(found: Sequence[Child], *, lost: bool = False) -> None:
    async with anyio.create_task_group() as group:
        for child in found:
            group.start_soon(lambda one: Witness(one.spool).testify(one, lost=lost), child)


async def test_a_killed_guard_loses_no_output_and_guesses_no_code(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        found = await start_all(processes, spools)
        for guard in guards(spools):
            kill(guard)
        await hear_all(found, lost=True)


async def test_a_killed_nursery_is_replaced_and_its_guards_go_on(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        first = await start_all(processes, spools[:2])
        [nursery] = nurseries(processes)
        kill(nursery)
        second = await start_all(processes, spools[2:])
        await hear_all([*first, *second])
        assert nurseries(processes) != [nursery]


async def test_a_killed_child_is_told_from_one_that_ended(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        [child] = await start_all(processes, spools[:1])
        await until(lambda: bool(Witness(spools[0]).daemons()))
        kill(child.status().pid)
        await Witness(spools[0]).testify(child, killed=True)
    assert child.status().code == -9


async def test_children_outlive_an_owner_that_is_killed(processes: Spools, spools: list[Path]) -> None:
    owner = Owner.of(spools)
    try:
        await anyio.sleep(random.uniform(0, 0.3))
    finally:
        owner.kill()
    with anyio.fail_after(DEADLINE):
        found = [await processes.adopt(spool) for spool in spools]
        idle = [spool for spool, child in zip(spools, found, strict=True) if child is None]
        await hear_all([child for child in found if child] + await start_all(processes, idle))


async def test_guards_and_owner_killed_at_once_leave_true_codes_or_none(processes: Spools, spools: list[Path]) -> None:
    owner = Owner.of(spools)
    try:
        await until(lambda: len(children(spools)) == len(spools))
    finally:
        victims = guards(spools)
        owner.kill()
        for victim in victims:
            kill(victim)
    with anyio.fail_after(DEADLINE):
        found = [child for spool in spools if (child := await processes.adopt(spool))]
        assert len(found) == len(spools)
        await hear_all(found, lost=True)


async def test_a_child_hears_no_end_of_input_when_everybody_around_it_dies(processes: Spools, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
        await child.send(b"before")
        await line_of(child, b"got before")
        await until(lambda: b" in=7" in (child.spool / "status").read_bytes())
        for victim in [*nurseries(processes), *guards([child.spool])]:
            kill(victim)
        await child.send(b"after")
        await child.send(b"end")
        assert (await child.wait()).code is None
    assert await printed(child) == [b"got before", b"got after", b"got end"]


async def test_closing_lets_children_go_on(processes: Spools, tmp_path: Path) -> None:
    first = Spools(SystemClock())
    await first.open()
    child = await first.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
    await first.close()
    assert guards([child.spool]) == [child.status().guard]
    with anyio.fail_after(DEADLINE):
        adopted = await processes.adopt(child.spool)
        assert adopted is not None
        await adopted.send(b"end")
        assert (await adopted.wait()).code == CODE


def test_the_doctor_says_that_it_is_untested(tmp_path: Path) -> None:
    doctor = [sys.executable, "-m", "codefleet", "doctor", "--home", str(tmp_path / "home")]
    said = subprocess.run(doctor, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
    assert "written for macOS and untested" in said
