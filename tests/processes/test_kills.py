"""Whoever is killed, at whatever instant: started once, output whole, code true or unknown, nothing left."""

import random
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from codefleet.ports import Child, SystemClock
from codefleet.processes.spools import Spools
from codefleet.testing.processes.children import DEADLINE, alive, kill, line_of, printed, shell, until
from codefleet.testing.processes.faults import (
    CODE,
    Owner,
    Witness,
    children,
    guards,
    kill_at_random,
    nurseries,
    nursery_of,
)

EIGHT = range(8)


@pytest.fixture
def spools(tmp_path: Path) -> list[Path]:
    (tmp_path / "spool").mkdir()
    return [tmp_path / "spool" / str(number) for number in EIGHT]


async def start_all(processes: Spools, spools: Sequence[Path], **kind: bool) -> list[Child]:
    found: dict[Path, Child] = {}

    async def one(spool: Path) -> None:
        found[spool] = await processes.start(spool, Witness(spool).job(**kind))

    async with anyio.create_task_group() as group:
        for spool in spools:
            group.start_soon(one, spool)
    return [found[spool] for spool in spools]


async def hear_all(found: Sequence[Child], *, killed: bool = False, lost: bool = False) -> None:
    async with anyio.create_task_group() as group:
        for child in found:
            group.start_soon(lambda one: Witness(one.spool).testify(one, killed=killed, lost=lost), child)


async def take_over(processes: Spools, spools: Sequence[Path]) -> list[Child]:
    """What the next engine does: adopt what ran, start what never did."""
    found = [await processes.adopt(spool) for spool in spools]
    idle = [spool for spool, child in zip(spools, found, strict=True) if child is None]
    return [child for child in found if child] + await start_all(processes, idle)


async def test_a_killed_guard_loses_no_exit_code(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        found = await start_all(processes, spools, stubborn=True)
        for guard in guards(spools):
            kill(guard)
        await hear_all(found)


async def test_guards_killed_again_and_again_lose_nothing(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as group:
            group.start_soon(kill_at_random, lambda: guards(spools), 40, 0.02)
            await hear_all(await start_all(processes, spools))


async def test_what_hides_from_a_guard_is_found_by_the_next(processes: Spools, tmp_path: Path) -> None:
    """A daemon without the child's environment is known only because the child adopts what it started."""
    script = "(env -i setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' &) ; read x; exit 7"
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(script, tmp_path, stdin="queue"))
        first = child.status().guard
        daemon = int((await anext(aiter(child.lines()))).data)
        kill(first)
        async with anyio.create_task_group() as group:
            group.start_soon(child.wait)
            await until(lambda: child.status().guard != first)
            await child.send(b"go")
    assert (child.status().code, child.status().swept) == (CODE, 1)
    assert not alive(daemon)


async def test_a_killed_nursery_is_replaced_and_its_guards_go_on(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        first = await start_all(processes, spools[:4])
        [nursery] = nurseries(processes)
        kill(nursery)
        second = await start_all(processes, spools[4:])
        await hear_all([*first, *second])
        assert nurseries(processes) != [nursery]


async def test_nursery_and_guards_killed_together_lose_no_exit_code(processes: Spools, spools: list[Path]) -> None:
    """The engine itself holds on to the children, so it can hand them to other guards."""
    with anyio.fail_after(DEADLINE):
        found = await start_all(processes, spools)
        for victim in [*nurseries(processes), *guards(spools)]:
            kill(victim)
        await hear_all(found)


async def test_nurseries_and_guards_killed_at_random_lose_nothing(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as group:
            group.start_soon(kill_at_random, lambda: guards(spools) + nurseries(processes), 30, 0.03)
            await hear_all(await start_all(processes, spools))


async def test_a_killed_child_leaves_nothing_whoever_else_dies(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as group:
            group.start_soon(kill_at_random, lambda: guards(spools) + children(spools), 40, 0.01)
            await hear_all(await start_all(processes, spools), killed=True, lost=True)


async def test_a_killed_child_is_told_from_one_that_ended(processes: Spools, spools: list[Path]) -> None:
    with anyio.fail_after(DEADLINE):
        [child] = await start_all(processes, spools[:1])
        await until(lambda: bool(Witness(spools[0]).daemons()))
        kill(child.status().pid)
        await Witness(spools[0]).testify(child, killed=True)
        assert child.status().code == -9
        assert child.status().ended_by == ""


@pytest.mark.parametrize("when", [0.0, 0.03, 0.1])
async def test_children_outlive_an_owner_that_is_killed(processes: Spools, spools: list[Path], when: float) -> None:
    owner = Owner.of(spools)
    try:
        await anyio.sleep(random.uniform(0, 2 * when))
    finally:
        owner.kill()
    with anyio.fail_after(DEADLINE):
        await hear_all(await take_over(processes, spools))


@pytest.mark.parametrize("when", [0.01, 0.05, 0.15])
async def test_guards_nursery_and_owner_killed_at_once_leave_true_codes_or_none(
    processes: Spools, spools: list[Path], when: float
) -> None:
    owner = Owner.of(spools)
    try:
        await anyio.sleep(random.uniform(0, 2 * when))
    finally:
        victims = [*nursery_of(owner), *guards(spools)]
        owner.kill()
        for victim in victims:
            kill(victim)
    with anyio.fail_after(DEADLINE):
        await hear_all(await take_over(processes, spools), lost=True)


async def test_a_guard_of_a_dead_owner_can_die_too(processes: Spools, spools: list[Path]) -> None:
    owner = Owner.of(spools[:4])
    try:
        await until(lambda: len(children(spools[:4])) == 4)
    finally:
        owner.kill()
    with anyio.fail_after(DEADLINE):
        found = await take_over(processes, spools[:4])
        async with anyio.create_task_group() as group:
            group.start_soon(kill_at_random, lambda: guards(spools[:4]), 10, 0.02)
            await hear_all(found)


async def test_without_the_kernels_word_a_corpse_tells_how_it_ended(
    spools: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux before 6.15: the nursery keeps the corpses of orphans until their next guard has looked."""
    monkeypatch.setenv("CODEFLEET_TEST_NO_PIDFD_INFO", "1")
    processes = Spools(SystemClock())
    await processes.open()
    with anyio.fail_after(DEADLINE):
        found = await start_all(processes, spools)
        for guard in guards(spools):
            kill(guard)
        await hear_all(found)
    await processes.close()


# ----------------------------------------------------------------------------------------------------- standard input

ECHO = 'while read -r line; do echo "got $line"; [ "$line" = end ] && exit 7; done'


async def feed(child: Child, words: Sequence[bytes]) -> None:
    for word in words:
        await child.send(word)


def words(count: int) -> list[bytes]:
    return [b"%d:%s" % (number, b"x" * random.choice([0, 10, 5000])) for number in range(count)] + [b"end"]


async def test_no_line_is_lost_or_doubled_when_guards_die(processes: Spools, tmp_path: Path) -> None:
    sent = words(60)
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
        async with anyio.create_task_group() as group:
            group.start_soon(kill_at_random, lambda: guards([child.spool]), 15, 0.02)
            group.start_soon(feed, child, sent)
            assert (await child.wait()).code == CODE
    assert await printed(child) == [b"got " + word for word in sent]


async def test_a_child_hears_no_end_of_input_when_everybody_around_it_dies(processes: Spools, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        child = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
        await child.send(b"before")
        await line_of(child, b"got before")
        for victim in [*nurseries(processes), *guards([child.spool])]:
            kill(victim)
        await child.send(b"after")
        await child.send(b"end")
        assert (await child.wait()).code == CODE
    assert await printed(child) == [b"got before", b"got after", b"got end"]


async def test_a_line_that_its_sender_was_killed_in_is_dropped(processes: Spools, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        first = await processes.start(tmp_path / "spool", shell(ECHO, tmp_path, stdin="queue"))
        await first.send(b"whole")
        with (first.spool / "in").open("ab") as queue:
            queue.write(b"torn")
        child = await processes.adopt(first.spool)
        assert child is not None
        await child.send(b"end")
        assert (await child.wait()).code == CODE
    assert await printed(child) == [b"got whole", b"got end"]
