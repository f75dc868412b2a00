"""What else can happen to a machine and its processes: sleep, jumping clocks, stopped guards, reused pids, reboots."""

import ctypes
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from codefleet.core.errors import Failed
from codefleet.ports import Child, ChildState, SystemClock
from codefleet.processes import spool as files
from codefleet.processes.guard import kernel, records
from codefleet.processes.spools import Spools
from codefleet.testing.processes.children import DEADLINE, alive, kill, line_of, printed, shell, until
from codefleet.testing.processes.faults import CODE, Witness, guards, nurseries

WALL = 0x40000000
ECHO = 'while read -r line; do echo "got $line"; [ "$line" = end ] && exit 7; done'


async def echoed(child: Child, word: bytes) -> None:
    with anyio.fail_after(DEADLINE):
        await child.send(word)
        await line_of(child, b"got " + word)


# --------------------------------------------------------------------------------------------------- clocks and sleep


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that shifts the clocks of guards: boot time, and wall time."""
    path = tmp_path / "clock"
    path.write_text("0 0")
    monkeypatch.setenv("CODEFLEET_TEST_CLOCK", str(path))
    return path


def shift(clock: Path, jump: str) -> None:
    """At once and whole: somebody may be reading."""
    clock.with_suffix(".new").write_text(jump)
    clock.with_suffix(".new").rename(clock)


@pytest.fixture
async def shifted(clock: Path) -> AsyncIterator[Spools]:
    """Spools whose guards follow that file."""
    spools = Spools(SystemClock(), patience=0.2)
    await spools.open()
    yield spools
    await spools.close()


@pytest.mark.parametrize("jump", ["600 600", "0 3600", "0 -3600"], ids=["asleep", "forwards", "backwards"])
async def test_neither_sleep_nor_a_jumping_clock_uses_up_a_limit(
    shifted: Spools, clock: Path, tmp_path: Path, jump: str
) -> None:
    child = await shifted.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue", limit=60))
    await echoed(child, b"before")
    shift(clock, jump)
    await echoed(child, b"after")
    await echoed(child, b"later")
    await child.send(b"end")
    status = await child.wait()
    assert (status.code, status.ended_by) == (CODE, "")


async def test_a_limit_goes_on_counting_after_sleep(shifted: Spools, clock: Path, tmp_path: Path) -> None:
    child = await shifted.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue", limit=0.3, grace=0.1))
    shift(clock, "600 600")
    with anyio.fail_after(DEADLINE):
        assert (await child.wait()).ended_by == "limit"


async def test_the_limit_is_not_begun_anew_by_another_guard(processes: Spools, tmp_path: Path) -> None:
    """A job whose limit was nearly used up, by a guard that is dead."""
    spool = tmp_path / "spool"
    child = await processes.start(spool, shell("read x", tmp_path, stdin="queue", limit=3600, grace=0.1))
    kill(child.status().guard)
    with anyio.fail_after(DEADLINE):
        fd = os.open(spool / "status", os.O_RDWR)
        record = records.Record(fd)
        record.put({"used": 3_600_000})
        os.close(fd)
        assert (await child.wait()).ended_by == "limit"


async def test_everything_stopped_and_continued_is_as_before(shifted: Spools, clock: Path, tmp_path: Path) -> None:
    child = await shifted.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue", limit=60))
    await echoed(child, b"before")
    stopped = [child.status().guard, child.status().pid]
    for pid in stopped:
        kill(pid, signal.SIGSTOP)
    shift(clock, "600 600")
    for pid in stopped:
        kill(pid, signal.SIGCONT)
    await echoed(child, b"after")
    await child.send(b"end")
    assert (await child.wait()).code == CODE
    assert child.status().guard == stopped[0]


# ------------------------------------------------------------------------------------------------- guards that do not


async def test_a_stopped_guard_is_continued(processes: Spools, tmp_path: Path) -> None:
    child = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
    guard = child.status().guard
    await child.send(b"end")
    kill(guard, signal.SIGSTOP)
    with anyio.fail_after(DEADLINE):
        status = await child.wait()
    assert (status.code, status.guard) == (CODE, guard)


async def test_a_guard_that_is_stopped_behind_its_last_word_does_not_stay(processes: Spools, tmp_path: Path) -> None:
    """Whenever the stop falls, the leak check after the test finds nothing."""
    for number in range(12):
        child = await processes.start(tmp_path / f"spool-{number}", shell("exit 7", tmp_path))
        kill(child.status().guard, signal.SIGSTOP)
        with anyio.fail_after(DEADLINE):
            assert (await child.wait()).code == 7


async def test_who_wants_an_end_does_not_wait_for_a_stopped_guard(processes: Spools, tmp_path: Path) -> None:
    child = await processes.start(tmp_path / "spool", shell("read x", tmp_path, stdin="queue"))
    kill(child.status().guard, signal.SIGSTOP)
    with anyio.fail_after(DEADLINE):
        assert (await child.stop(0)).ended_by == "stop"


async def test_a_guard_that_is_stopped_for_good_makes_room_for_another(processes: Spools, tmp_path: Path) -> None:
    child = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
    guard = child.status().guard
    with traced(guard), anyio.fail_after(DEADLINE):
        await child.send(b"end")
        status = await child.wait()
    assert status.code == CODE
    assert status.guard != guard


@contextmanager
def traced(pid: int) -> Iterator[None]:
    """Stop a process as a debugger does: nothing continues it."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt = 0x4206, 0x4207
    assert libc.ptrace(seize, pid, None, None) == 0
    assert libc.ptrace(interrupt, pid, None, None) == 0
    os.waitpid(pid, WALL)
    yield
    os.waitpid(pid, WALL)


async def test_a_stopped_nursery_is_replaced(processes: Spools, tmp_path: Path) -> None:
    [nursery] = nurseries(processes)
    kill(nursery, signal.SIGSTOP)
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell("exit 7", tmp_path))
        assert (await child.wait()).code == CODE
    assert nurseries(processes) != [nursery]


@pytest.fixture
def cursed(tmp_path: Path) -> Path:
    """A spool in which every guard crashes before it has begun."""
    (tmp_path / "spool" / "ctl").mkdir(parents=True)
    return tmp_path / "spool"


async def test_where_no_guard_stays_nothing_will_ever_run(cursed: Path, tmp_path: Path) -> None:
    processes = Spools(SystemClock(), within=0.5)
    await processes.open()
    with anyio.fail_after(DEADLINE), pytest.raises(Failed, match="no guard came"):
        await processes.start(cursed, shell("touch ran", tmp_path))
    assert processes.peek(cursed).state is ChildState.ABSENT
    assert await processes.adopt(cursed) is None
    await processes.close()
    assert not (tmp_path / "ran").exists()


async def test_without_hints_of_the_kernel_children_are_kept_all_the_same(processes: Spools, tmp_path: Path) -> None:
    processes._hints.close()
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
        await echoed(child, b"word")
        await child.send(b"end")
        assert (await child.wait()).code == CODE
    assert await printed(child) == [b"got word", b"got end"]


async def test_closing_twice_is_harmless() -> None:
    processes = Spools(SystemClock())
    await processes.open()
    await processes.close()
    await processes.close()


async def test_guards_that_crash_are_asked_for_less_and_less_often(processes: Spools, tmp_path: Path) -> None:
    child = await processes.start(tmp_path / "spool", shell("read x; exit 7", tmp_path, stdin="queue"))
    (child.spool / "ctl").rename(child.spool / "ctl.gone")
    kill(child.status().guard)
    log = child.spool / "guard.log"

    def crashes() -> int:
        return log.read_text().count("FileNotFoundError") if log.exists() else 0

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as group:
            group.start_soon(child.wait)
            await until(lambda: crashes() >= 3)
            (child.spool / "ctl.gone").rename(child.spool / "ctl")
            await child.send(b"go")
    assert child.status().code == CODE
    assert crashes() < 8


async def test_terminating_a_guard_ends_its_child(processes: Spools, tmp_path: Path) -> None:
    child = await processes.start(tmp_path / "spool", shell("read x", tmp_path, stdin="queue"))
    kill(child.status().guard, signal.SIGTERM)
    with anyio.fail_after(DEADLINE):
        status = await child.wait()
    assert (status.code, status.ended_by) == (-2, "stop")


async def test_a_stop_is_gone_through_with_by_the_next_guard(processes: Spools, tmp_path: Path) -> None:
    script = "trap '' INT TERM; echo ready; while :; do sleep 0.02; done"
    child = await processes.start(tmp_path / "spool", shell(script, tmp_path))
    with anyio.fail_after(DEADLINE):
        await line_of(child, b"ready")
        async with anyio.create_task_group() as group:
            group.start_soon(child.stop, 0.2)
            await until(lambda: bool(files.read(child.spool).ending))
            kill(child.status().guard)
    assert (child.status().code, child.status().ended_by) == (-9, "stop")


async def test_a_stop_of_an_adopted_child_ends_what_hides(processes: Spools, tmp_path: Path) -> None:
    witness = Witness(tmp_path / "spool")
    script = (
        "setsid sh -c 'trap \"\" TERM INT; echo $$; exec env -i sleep 600' & trap '' INT TERM; sleep 600 & wait; wait"
    )
    child = await processes.start(witness.spool, shell(script, tmp_path))
    with anyio.fail_after(DEADLINE):
        lines = child.lines()
        daemon = int((await anext(lines)).data)
        kill(child.status().guard)
        assert (await child.stop(0)).state is ChildState.DONE
        assert [line async for line in lines] == []
    assert not alive(daemon)


# ------------------------------------------------------------------------------------- spools that say what is not so


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any spool."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def left_behind(spool: Path, **fields: object) -> None:
    """A spool as a guard left it that is dead now."""
    files.lay(spool, shell("touch ran", spool.parent))
    here = {"boot": kernel.here()[0], "pidns": kernel.here()[1], "v": 1, "guard": 2**22 + 1, "gstart": 5}
    fd = os.open(spool / "status", os.O_RDWR)
    records.Record(fd).put({**here, "state": "running", **fields})
    os.pwrite(fd, b"begun", records.MARK)
    os.close(fd)


async def judged(processes: Spools, spool: Path) -> Child:
    with anyio.fail_after(DEADLINE):
        child = await processes.adopt(spool)
        assert child is not None
        await child.wait()
    assert not (spool.parent / "ran").exists()
    return child


async def test_a_pid_that_is_somebody_elses_now_is_left_alone(
    processes: Spools, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    left_behind(tmp_path / "spool", pid=bystander.pid, start=kernel.start_of(bystander.pid) - 1)
    child = await judged(processes, tmp_path / "spool")
    assert (child.status().state, child.status().code) == (ChildState.DONE, None)
    assert bystander.poll() is None


async def test_a_guards_pid_that_is_somebody_elses_now_is_left_alone(
    processes: Spools, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    fields = {"guard": bystander.pid, "gstart": kernel.start_of(bystander.pid) - 1}
    left_behind(tmp_path / "spool", pid=2**22 + 2, start=5, **fields)
    assert (await judged(processes, tmp_path / "spool")).status().code is None
    assert bystander.poll() is None


@pytest.mark.parametrize("place", ["boot", "pidns"])
async def test_what_ran_before_a_reboot_or_elsewhere_is_over(
    processes: Spools, tmp_path: Path, bystander: subprocess.Popen[bytes], place: str
) -> None:
    who = {"pid": bystander.pid, "start": kernel.start_of(bystander.pid)}
    ledger = f"{bystander.pid}:{kernel.start_of(bystander.pid)}"
    left_behind(tmp_path / "spool", tree=ledger, **who, **{place: "another"})
    assert processes.peek(tmp_path / "spool").state is ChildState.EXITED
    status = (await judged(processes, tmp_path / "spool")).status()
    assert (status.code, status.ended_by) == (None, "machine")
    assert bystander.poll() is None


async def test_a_code_that_was_recorded_survives_a_reboot(processes: Spools, tmp_path: Path) -> None:
    left_behind(tmp_path / "spool", state="exited", code=3, pid=77, start=1, boot="another")
    assert (await judged(processes, tmp_path / "spool")).status().code == 3


async def test_a_child_that_was_never_let_go_is_started_by_the_next_guard(processes: Spools, tmp_path: Path) -> None:
    """Its guard died between the record and the word to begin: the child ended without having been the program."""
    spool = tmp_path / "spool"
    files.lay(spool, shell("echo ran; exit 7", tmp_path))
    fd = os.open(spool / "status", os.O_RDWR)
    here = {"boot": kernel.here()[0], "pidns": kernel.here()[1], "guard": 2**22 + 1, "gstart": 5}
    records.Record(fd).put({**here, "v": 1, "state": "starting", "pid": 2**22 + 2, "start": 5})
    os.close(fd)
    with anyio.fail_after(DEADLINE):
        child = await processes.adopt(spool)
        assert child is not None
        assert (await child.wait()).code == CODE
    assert await printed(child) == [b"ran"]


async def test_descriptors_are_given_back(processes: Spools, tmp_path: Path) -> None:
    async def one(name: str) -> None:
        child = await processes.start(tmp_path / name, shell("exit 0", tmp_path))
        await child.wait()

    await one("first")
    before = descriptors()
    for number in range(20):
        await one(str(number))
    assert descriptors() == before


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_closing_lets_children_go_on(tmp_path: Path, processes: Spools) -> None:
    first = Spools(SystemClock())
    await first.open()
    child = await first.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
    await first.close()
    assert alive(child.status().pid)
    assert guards([child.spool]) == [child.status().guard]
    with anyio.fail_after(DEADLINE):
        adopted = await processes.adopt(child.spool)
        assert adopted is not None
        await adopted.send(b"end")
        assert (await adopted.wait()).code == CODE
