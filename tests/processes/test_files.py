"""What lies in a spool survives torn writes and carries anything; output is cut into the same lines however it comes."""

import os
import stat
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.core.errors import Failed, InvalidInput
from codefleet.ports import ChildState, Job
from codefleet.processes import spool as files
from codefleet.processes.guard import kernel, records
from codefleet.processes.guard.feed import Feed
from codefleet.processes.lines import Splitter
from codefleet.processes.spools import Spools
from codefleet.testing.processes.children import alive, python, shell, until

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1, max_size=9)


def laid(spool: Path) -> Path:
    files.lay(spool, shell("true", spool.parent))
    return spool


def write_status(spool: Path, mark: str = "", **fields: object) -> None:
    """What a guard could have left."""
    fd = os.open(spool / "status", os.O_RDWR)
    if fields:
        records.Record(fd).put(fields)
    os.pwrite(fd, mark.encode(), records.MARK)
    os.close(fd)


# -------------------------------------------------------------------------------------------------------------- status


@given(damage=st.binary(min_size=1, max_size=80), at=st.integers(0, 80))
def test_a_torn_slot_gives_way_to_the_one_before(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes, at: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "status"
    path.write_bytes(bytes(records.SIZE))
    fd = os.open(path, os.O_RDWR)
    record = records.Record(fd)
    record.put({"state": "running", "pid": 42})
    first, _ = records.newest(path.read_bytes())
    record.put({"state": "done", "code": 0})
    second, _ = records.newest(path.read_bytes())
    os.pwrite(fd, damage, at)
    os.close(fd)
    assert (first, second) == ({"state": "running", "pid": "42"}, {"state": "done", "pid": "42", "code": "0"})
    assert records.newest(path.read_bytes())[0] in (first, second)


def test_a_status_is_always_there_however_often_it_is_written(tmp_path: Path) -> None:
    spool = laid(tmp_path / "spool")
    for code in range(5):
        write_status(spool, state="done", code=code)
        assert files.read(spool).status.code == code
    assert records.Job((spool / "status").read_bytes()[records.SIZE :]).argv == ["sh", "-c", "true"]


def test_a_status_of_which_nothing_can_be_read_is_not_taken_for_a_fresh_spool(tmp_path: Path) -> None:
    spool = laid(tmp_path / "spool")
    write_status(spool, mark="begun")
    assert files.read(spool).status.state is ChildState.RUNNING
    with pytest.raises(Failed, match="has been used"):
        files.lay(spool, shell("true", tmp_path))


def test_why_a_program_could_not_be_run_is_the_childs_own_word(tmp_path: Path) -> None:
    spool = laid(tmp_path / "spool")
    write_status(spool, mark="failed 127 nope: No such file", state="done", code=127)
    assert files.read(spool).status.exec_error == "nope: No such file"


# ----------------------------------------------------------------------------------------------------------------- job


@given(argv=st.lists(WORDS, min_size=1, max_size=4), env=st.dictionaries(NAMES, WORDS, max_size=4))
def test_a_job_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, argv: list[str], env: dict[str, str]
) -> None:
    spool = tmp_path_factory.getbasetemp() / "job-spool"
    job = Job(argv=tuple(argv), cwd=Path("/some where"), env=env, limit=1.5, max_output=7)
    files.lay(spool, job)
    read = records.Job((spool / "status").read_bytes()[records.SIZE :])
    assert (read.argv, read.env, read.cwd) == (argv, env, "/some where")
    assert (read.limit, read.max_output, read.stdin) == (1.5, 7, os.devnull)


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"A": "x\0y"}])
def test_a_variable_that_no_environment_can_hold_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        files.lay(tmp_path / "spool", Job(argv=("true",), cwd=tmp_path, env=env))
    assert not (tmp_path / "spool").exists()


def test_a_spool_is_for_its_owner_alone(tmp_path: Path) -> None:
    spool = laid(tmp_path / "deep" / "spool")
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in spool.iterdir()} == {0o600}


async def test_a_child_that_was_asked_for_is_not_absent_until_somebody_made_sure(
    processes: Spools, tmp_path: Path
) -> None:
    spool = laid(tmp_path / "spool")
    assert processes.peek(spool).state is ChildState.STARTING
    assert await processes.adopt(spool) is None
    assert processes.peek(spool).state is ChildState.ABSENT


def test_nothing_runs_where_somebody_made_sure_of_it(tmp_path: Path) -> None:
    spool = laid(tmp_path / "spool")
    assert files.void(spool)
    assert not (spool / "status").exists()


async def test_a_guard_that_comes_too_late_starts_nothing(processes: Spools, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    files.lay(spool, shell("touch ran", tmp_path))
    assert await processes.adopt(spool) is None
    await processes._guards.ask(spool)
    again = tmp_path / "again"
    await (await processes.start(again, shell("true", tmp_path))).wait()
    assert processes.peek(spool).state is ChildState.ABSENT
    assert not (tmp_path / "ran").exists()


# --------------------------------------------------------------------------------------------------------------- queue


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A feed that has moved one line of two, in a spool that it works in."""
    files.lay(tmp_path / "spool", shell("true", tmp_path, stdin="queue"))
    monkeypatch.chdir(tmp_path / "spool")
    files.queue(tmp_path / "spool", b"first")
    feed = Feed()
    assert feed.pump()
    files.queue(tmp_path / "spool", b"second")
    yield feed
    os.close(feed.queue)
    os.close(feed.pipe)


def resumed(pidfd: int, pid: int, inherited: int, recorded: int) -> int:
    """Where another guard goes on."""
    feed = Feed()
    feed.resume(pidfd, pid, inherited, recorded)
    place = feed.place()
    os.close(feed.queue)
    os.close(feed.pipe)
    return place


def test_the_child_knows_how_much_of_its_input_was_moved(feed: Feed) -> None:
    with subprocess.Popen(["sleep", "600"], pass_fds=[feed.queue]) as child:
        pidfd = os.pidfd_open(child.pid)
        assert resumed(pidfd, child.pid, feed.queue, 0) == len(b"first\n")
        assert resumed(-1, child.pid, feed.queue, 0) == len(b"first\n")
        os.close(pidfd)
        child.kill()


def test_a_child_that_closed_what_it_inherited_is_fed_by_the_record(feed: Feed) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        pidfd = os.pidfd_open(child.pid)
        assert resumed(pidfd, child.pid, feed.queue, 6) == 6
        assert resumed(pidfd, child.pid, 0, 6) == 6
        os.close(pidfd)
        child.kill()


async def test_a_child_inherits_nothing_but_its_own(processes: Spools, tmp_path: Path) -> None:
    script = "import os; print(*sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    plain = await processes.start(tmp_path / "plain", python(script, tmp_path))
    fed = await processes.start(tmp_path / "fed", python(script, tmp_path, stdin="queue"))
    assert [line.data async for line in plain.lines()] == [b"0 1 2"]
    assert [line.data async for line in fed.lines()] == [b"0 1 2 3"]
    await plain.wait()
    await fed.wait()


# ------------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("pid", [-1, 0, 1, "our own"])
def test_nobody_important_can_be_signalled(pid: int | str) -> None:
    number = os.getpid() if isinstance(pid, str) else pid
    with pytest.raises(ValueError, match="nobody we may signal"):
        kernel.send(number, kernel.start_of(max(number, 1)), 0)


# --------------------------------------------------------------------------------------------------------------- lines


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_lines_do_not_depend_on_how_output_was_read(data: bytes, cuts: list[int]) -> None:
    data = data.replace(b"a", b"\n").replace(b"\0", b"\n")
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    splitter = Splitter(0)
    found = [line for begin, end in pairwise(places) for line in splitter.feed(data[begin:end])]
    found += splitter.rest()
    assert [line.data for line in found] == data.split(b"\n")[: len(found)]
    assert b"".join(data[line.offset : line.end] for line in found) == data
    assert not any(line.cut for line in found)


async def test_much_output_takes_little_memory(processes: Spools, tmp_path: Path) -> None:
    script = "import os\npiece = (b'x' * 9_999 + b'\\n') * 100\nfor _ in range(200): os.write(1, piece)"
    child = await processes.start(tmp_path / "spool", python(script, tmp_path))
    before = most = resident()
    count = 0
    async for line in child.lines():
        assert len(line.data) == 9_999
        most = max(most, resident())
        count += 1
    assert count == 20_000
    assert most - before < 20_000_000
    assert (await child.wait()).code == 0
    (child.spool / "out").unlink()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_lines_end_when_the_spool_is_removed(processes: Spools, tmp_path: Path) -> None:
    child = await processes.start(tmp_path / "spool", shell("echo one; read x", tmp_path, stdin="queue"))
    running = child.status()
    lines = child.lines()
    assert (await anext(lines)).data == b"one"
    for entry in child.spool.iterdir():
        entry.unlink()
    child.spool.rmdir()
    assert [line async for line in lines] == []
    status = await child.wait()
    assert (status.state, status.code) == (ChildState.DONE, None)
    assert not alive(running.pid)
    await until(lambda: not alive(running.guard))
