"""An engine is present as long as its process holds a lock, and nobody can forget to let go of it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codefleet.core.errors import AlreadyRunning
from codefleet.core.layout import Home
from codefleet.processes.presence import FilePresence

HOLDER = """
import sys
from pathlib import Path
from codefleet.core.layout import Home
from codefleet.processes.presence import FilePresence
presence = FilePresence(Home(Path(sys.argv[1])))
presence.enter(sys.argv[2])
presence.only()
print("held", flush=True)
sys.stdin.read()
"""

Hold = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def hold(home: Home) -> Iterator[Hold]:
    """Starts another process that is present as an engine and as the one plain start."""
    started: list[subprocess.Popen[bytes]] = []

    def start(engine: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-c", HOLDER, str(home.path), engine]
        holder = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        return holder

    yield start
    for holder in started:
        holder.kill()
        holder.communicate()


def test_an_engine_is_alive_until_it_leaves(home: Home) -> None:
    presence = FilePresence(home)
    assert not presence.alive("e_1")
    presence.enter("e_1")
    assert presence.alive("e_1")
    assert FilePresence(home).alive("e_1")
    presence.leave("e_1")
    assert not presence.alive("e_1")
    assert not home.engine_lock("e_1").parent.exists()


def test_entering_and_leaving_twice_is_harmless(home: Home) -> None:
    presence = FilePresence(home)
    presence.enter("e_1")
    presence.enter("e_1")
    presence.leave("e_1")
    presence.leave("e_1")
    assert not presence.alive("e_1")


def test_two_processes_can_not_be_one_engine(home: Home, hold: Hold) -> None:
    holder = hold("e_1")
    with pytest.raises(AlreadyRunning, match=str(holder.pid)):
        FilePresence(home).enter("e_1")


def test_a_second_plain_start_is_refused_and_told_who_holds(home: Home, hold: Hold) -> None:
    holder = hold("e_1")
    with pytest.raises(AlreadyRunning, match=f"pid {holder.pid}") as refused:
        FilePresence(home).only()
    assert "--name" in refused.value.hint


def test_a_holder_that_has_not_signed_yet_is_said_to_be_starting(home: Home, hold: Hold) -> None:
    hold("e_1")
    home.start_lock.write_text("")
    with pytest.raises(AlreadyRunning, match="just starting"):
        FilePresence(home).only()


def test_a_killed_process_is_present_no_more(home: Home, hold: Hold) -> None:
    holder = hold("e_1")
    presence = FilePresence(home)
    assert presence.alive("e_1")
    holder.kill()
    holder.wait()
    assert not presence.alive("e_1")
    presence.enter("e_1")
    presence.only()
    presence.leave("e_1")


def test_asking_who_lives_never_keeps_anybody_out(home: Home) -> None:
    presence, asking = FilePresence(home), FilePresence(home)
    for number in range(50):
        asking.alive(f"e_{number}")
        presence.enter(f"e_{number}")
        assert asking.alive(f"e_{number}")
        presence.leave(f"e_{number}")
