"""The contract of `ports.Processes` as behaviour.

Subclass `ProcessesContract` with a fixture `processes` that is open, and pytest holds the adapter to the port.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import anyio
import pytest

from codefleet.core.errors import Failed, InvalidInput
from codefleet.ports import Child, ChildState, ChildStatus, Job, Processes
from codefleet.testing.processes.children import (
    DAEMONS,
    DEADLINE,
    FORK_CHAINS,
    alive,
    environment,
    line_of,
    printed,
    python,
    shell,
    until,
)

LONG = 1 << 20


class ProcessesContract:
    """What every adapter promises."""

    @pytest.fixture
    def spool(self, tmp_path: Path) -> Path:
        return tmp_path / "spool" / "t.1" / "01-agent"

    # --------------------------------------------------------------------------------------------- how it ends

    @pytest.mark.parametrize("code", [0, 7, 126, 137, 255])
    async def test_an_exit_code_is_reported_as_it_was(
        self, processes: Processes, spool: Path, tmp_path: Path, code: int
    ) -> None:
        status = await self.run(processes, spool, shell(f"exit {code}", tmp_path))
        assert (status.state, status.code, status.known, status.ended_by) == (ChildState.DONE, code, True, "")

    async def test_a_death_by_signal_is_no_exit_code(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        status = await self.run(processes, spool, shell("kill -9 $$", tmp_path))
        assert status.code == -9
        assert status.ended_by == ""

    async def test_the_times_of_a_child_are_on_record(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        status = await self.run(processes, spool, shell("true", tmp_path))
        assert status.started_at is not None
        assert status.ended_at is not None
        assert status.started_at <= status.ended_at

    async def test_everybody_who_waits_hears_of_the_end(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        seen: list[ChildStatus] = []

        async def wait(child: Child) -> None:
            seen.append(await child.wait())

        with anyio.fail_after(DEADLINE):
            child = await processes.start(spool, shell("read x; exit 3", tmp_path, stdin="queue"))
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(wait, child)
                await child.send(b"go")
        assert [status.code for status in seen] == [3] * 5

    # ------------------------------------------------------------------------------------------- what could not run

    @pytest.mark.parametrize(
        ("argv", "code", "why"),
        [
            (("no-such-program",), 127, "no-such-program"),
            (("/no/such/program",), 127, "/no/such/program"),
            (("/etc/passwd",), 126, "Permission denied"),
        ],
    )
    async def test_a_program_that_can_not_be_run_is_told_from_one_that_failed(
        self, processes: Processes, spool: Path, tmp_path: Path, argv: tuple[str, ...], code: int, why: str
    ) -> None:
        status = await self.run(processes, spool, Job(argv=argv, cwd=tmp_path, env=environment()))
        assert status.code == code
        assert why in status.exec_error

    async def test_a_working_directory_that_is_not_there_is_an_exec_error(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        status = await self.run(processes, spool, shell("true", tmp_path / "gone"))
        assert "gone" in status.exec_error

    async def test_a_program_that_ends_with_127_is_no_exec_error(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        status = await self.run(processes, spool, shell("exit 127", tmp_path))
        assert (status.code, status.exec_error) == (127, "")

    async def test_a_nul_character_is_refused_before_anything_runs(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(InvalidInput):
            await processes.start(spool, Job(argv=("echo", "a\0b"), cwd=tmp_path, env=environment()))
        assert processes.peek(spool).state is ChildState.ABSENT

    # --------------------------------------------------------------------------------------------- what it is given

    async def test_arguments_reach_the_program_as_they_are(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        words = ("users can't login $(touch x)", "`id`", "", "a\nb", "ä🙂", "--", "*")
        script = "import sys; print(ascii(sys.argv[1:]))"
        job = python(script, tmp_path)
        child = await self.started(processes, spool, Job(argv=(*job.argv, *words), cwd=tmp_path, env=job.env))
        assert await printed(child) == [ascii(list(words)).encode()]
        assert not (tmp_path / "x").exists()
        await child.wait()

    async def test_the_environment_is_the_jobs_and_no_argument_shows_it(
        self, processes: Processes, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OURS", "not for children")
        job = shell("env; read x", tmp_path, stdin="queue", env=environment(HUSH="hush-7316", LINES_="a\nb=c"))
        child = await self.started(processes, spool, job)
        await line_of(child, b"HUSH=hush-7316")
        assert b"hush-7316" not in _command_lines()
        await child.send(b"")
        await child.wait()
        text = b"\n".join(await printed(child))
        assert b"LINES_=a\nb=c" in text
        assert b"OURS" not in text

    async def test_a_child_works_in_its_directory_in_a_session_of_its_own(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        script = "import os; print(os.getcwd(), os.getsid(0) == os.getpid())"
        child = await self.started(processes, spool, python(script, tmp_path))
        assert await printed(child) == [f"{tmp_path} True".encode()]
        await child.wait()

    async def test_signals_work_in_a_child_as_they_do_anywhere(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        shown = "grep -E 'SigIgn|SigBlk' /proc/self/status"
        child = await self.started(processes, spool, shell(shown, tmp_path))
        assert await printed(child) == [b"SigBlk:\t" + b"0" * 16, b"SigIgn:\t" + b"0" * 16]
        await child.wait()

    async def test_standard_input_is_empty_unless_asked_for(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        child = await self.started(processes, spool, shell("cat; echo end", tmp_path))
        assert await printed(child) == [b"end"]
        await child.wait()

    async def test_a_file_can_be_standard_input(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        prompt = tmp_path / "prompt.md"
        prompt.write_bytes(b"x" * 200_000 + b"\nlast")
        child = await self.started(processes, spool, shell("wc -c", tmp_path, stdin=prompt))
        assert await printed(child) == [b"200005"]
        await child.wait()

    async def test_queued_lines_arrive_in_order_whatever_their_size(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        sent = [b"first", b"y" * 300_000, b"", b"last"]
        script = "import sys\nfor line in sys.stdin.buffer:\n print(len(line) - 1, flush=True)\n if line == b'last\\n': break"
        child = await self.started(processes, spool, python(script, tmp_path, stdin="queue"))
        for line in sent:
            await child.send(line)
        assert await printed(child) == [str(len(line)).encode() for line in sent]
        await child.wait()

    # ------------------------------------------------------------------------------------------------- its output

    async def test_lines_come_while_the_child_runs(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        child = await self.started(
            processes, spool, shell("while read x; do echo got $x; done", tmp_path, stdin="queue")
        )
        with anyio.fail_after(DEADLINE):
            for word in (b"one", b"two"):
                await child.send(word)
                await line_of(child, b"got " + word)
            await child.stop(0)

    async def test_reading_goes_on_where_somebody_left_off(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        child = await self.started(processes, spool, shell("printf 'one\\ntwo\\n\\nthree'", tmp_path))
        await child.wait()
        lines = [line async for line in child.lines()]
        assert [(line.offset, line.end, line.data) for line in lines] == [
            (0, 4, b"one"),
            (4, 8, b"two"),
            (8, 9, b""),
            (9, 14, b"three"),
        ]
        assert await printed(child, offset=4) == [b"two", b"", b"three"]
        assert await printed(child, offset=14) == []

    async def test_of_a_very_long_line_the_beginning_is_kept(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        script = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo next"
        child = await self.started(processes, spool, shell(script, tmp_path))
        with anyio.fail_after(DEADLINE):
            long, following = [line async for line in child.lines()]
        assert (long.offset, long.end, long.cut) == (0, 50_000_001, True)
        assert len(long.data) <= LONG
        assert (following.data, following.cut) == (b"next", False)
        await child.wait()

    # -------------------------------------------------------------------------------------------------- ending it

    async def test_stop_asks_first(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        script = "trap 'echo asked; exit 5' INT; echo ready; while :; do sleep 0.01; done"
        child = await self.started(processes, spool, shell(script, tmp_path))
        with anyio.fail_after(DEADLINE):
            await line_of(child, b"ready")
            status = await child.stop(DEADLINE)
        assert (status.code, status.ended_by) == (5, "stop")
        assert await printed(child) == [b"ready", b"asked"]

    async def test_a_child_that_ignores_every_request_is_killed(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        script = "trap '' INT TERM HUP; echo ready; while :; do sleep 0.05; done"
        child = await self.started(processes, spool, shell(script, tmp_path))
        with anyio.fail_after(DEADLINE):
            await line_of(child, b"ready")
            status = await child.stop(0.05)
        assert (status.state, status.code, status.ended_by) == (ChildState.DONE, -9, "stop")

    async def test_a_second_stop_makes_it_urgent(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        child = await self.started(
            processes, spool, shell("trap '' INT TERM; echo ready; while :; do sleep 0.05; done", tmp_path)
        )
        with anyio.fail_after(DEADLINE):
            await line_of(child, b"ready")
            async with anyio.create_task_group() as group:
                group.start_soon(child.stop, 10 * DEADLINE)
                group.start_soon(child.stop, 0)
        assert child.status().code == -9

    async def test_stopping_what_has_ended_changes_nothing(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        ended = await self.run(processes, spool, shell("exit 4", tmp_path))
        child = await processes.adopt(spool)
        assert child is not None
        assert await child.stop(1) == ended

    async def test_what_left_the_session_ends_with_the_child(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        child = await self.started(processes, spool, python(DAEMONS, tmp_path))
        with anyio.fail_after(DEADLINE):
            status = await child.wait()
        daemons = [int(pid) for pid in await printed(child)]
        assert len(daemons) == 3
        assert status.code == 0
        assert status.swept >= 3
        assert not [pid for pid in daemons if alive(pid)]

    async def test_a_chain_of_forks_is_caught(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        child = await self.started(processes, spool, python(FORK_CHAINS, tmp_path))
        with anyio.fail_after(DEADLINE):
            await line_of(child, b"ready")
            status = await child.stop(0)
        assert status.state is ChildState.DONE
        assert status.swept > 0

    async def test_the_limit_ends_a_child_without_anybody_watching(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        job = shell("trap '' INT TERM; while :; do sleep 0.05; done", tmp_path, limit=0.2, grace=0.05)
        await processes.start(spool, job)
        await until(lambda: processes.peek(spool).state is ChildState.DONE)
        status = processes.peek(spool)
        assert (status.code, status.ended_by) == (-9, "limit")

    async def test_a_flood_is_ended(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        status = await self.run(processes, spool, shell("exec yes", tmp_path, max_output=1_000_000, grace=0.1))
        assert status.ended_by == "flood"
        assert status.code in {-2, -9}

    async def test_both_streams_count_as_output(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        status = await self.run(processes, spool, shell("exec yes >&2", tmp_path, max_output=1_000_000, grace=0.1))
        assert status.ended_by == "flood"

    # --------------------------------------------------------------------------------------------------- finding it

    async def test_a_used_spool_is_refused(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        await self.run(processes, spool, shell("exit 9", tmp_path))
        with pytest.raises(Failed):
            await processes.start(spool, shell("true", tmp_path))
        assert processes.peek(spool).code == 9

    async def test_where_nothing_ran_there_is_nothing_to_adopt(self, processes: Processes, spool: Path) -> None:
        assert await processes.adopt(spool) is None
        assert processes.peek(spool).state is ChildState.ABSENT
        _make(spool)
        assert await processes.adopt(spool) is None

    async def test_a_spool_where_nothing_ran_can_be_started(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        _make(spool)
        assert await processes.adopt(spool) is None
        assert (await self.run(processes, spool, shell("exit 2", tmp_path))).code == 2

    async def test_a_child_that_runs_is_adopted_as_it_is(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        script = "echo first; read x; echo $x; exit 6"
        with anyio.fail_after(DEADLINE):
            first = await processes.start(spool, shell(script, tmp_path, stdin="queue"))
            child = await processes.adopt(spool)
            assert child is not None
            assert child.spool == spool
            assert child.status().pid == first.status().pid
            await child.send(b"second")
            status = await child.wait()
        assert status.code == 6
        assert await printed(child) == [b"first", b"second"]

    async def test_what_has_ended_can_still_be_read(self, processes: Processes, spool: Path, tmp_path: Path) -> None:
        ended = await self.run(processes, spool, shell("echo done; exit 1", tmp_path))
        child = await processes.adopt(spool)
        assert child is not None
        assert await child.wait() == ended == child.status() == processes.peek(spool)
        assert await printed(child) == [b"done"]

    async def test_a_running_child_is_shown_with_its_pid(
        self, processes: Processes, spool: Path, tmp_path: Path
    ) -> None:
        child = await self.started(processes, spool, shell("echo $$; read x", tmp_path, stdin="queue"))
        async for line in child.lines():
            assert processes.peek(spool).pid == int(line.data)
            break
        assert processes.peek(spool).state is ChildState.RUNNING
        assert processes.peek(spool).code is None
        await child.stop(0)

    async def test_many_children_run_at_once(self, processes: Processes, tmp_path: Path) -> None:
        codes: dict[int, int | None] = {}

        async def one(number: int) -> None:
            status = await self.run(processes, tmp_path / "many" / str(number), shell(f"exit {number}", tmp_path))
            codes[number] = status.code

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(one, number)
        assert codes == {number: number for number in range(20)}

    # -------------------------------------------------------------------------------------------------- for the above

    async def started(self, processes: Processes, spool: Path, job: Job) -> Child:
        with anyio.fail_after(DEADLINE):
            return await processes.start(spool, job)

    async def run(self, processes: Processes, spool: Path, job: Job) -> ChildStatus:
        with anyio.fail_after(DEADLINE):
            return await (await processes.start(spool, job)).wait()


def _make(folder: Path) -> None:
    folder.mkdir(parents=True)


def _command_lines() -> bytes:
    """Of all processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(entry.read_bytes())
    return b"\n".join(found)
