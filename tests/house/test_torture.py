"""Torture finds what it looks for: a life in which nothing broke, then each kind of lie and loss put into its records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from codefleet.testing.torture import truth
from codefleet.testing.torture import world as worlds
from codefleet.testing.torture.__main__ import planned
from codefleet.testing.torture.life import Blow, Life
from codefleet.testing.torture.parties import PARTIES


def broken(life: Life) -> set[str]:
    return {name for name, seen in truth.examine(life).items() if seen}


@contextmanager
def rewritten(file: Path, text: str) -> Iterator[None]:
    """A file that says something else for a while."""
    before = file.read_text() if file.exists() else None
    file.write_text(text)
    try:
        yield
    finally:
        file.unlink() if before is None else file.write_text(before)


LIES: list[tuple[dict[str, Any], str]] = [
    ({"kind": "wrote", "path": "work/x.txt", "blob": "0" * 40}, "lost work"),
    ({"kind": "met", "alive": True, "other": {"cwd": "/elsewhere"}}, "double runs"),
    ({"kind": "met", "alive": False, "other": {"cwd": "/here"}}, "double runs"),
]


def test_a_survived_life_has_nothing_broken_and_each_lie_and_loss_put_into_it_is_found(tmp_path: Path) -> None:
    life = Life(worlds.make(tmp_path / "world"), "s/1", [Blow("engine", fault="kill:after:20")])
    life.live()
    assert (life.ended, life.code, life.starts) == (True, 0, 2)
    assert [name for name, _ in life.killed] == ["store call"]
    assert not broken(life)

    ledger = life.world.ledger / "ledger.jsonl"
    written = ledger.read_text()
    for lie, found in LIES:
        entry = {"run": f"{life.tasks[0]}.1", "task": life.tasks[0], "cwd": "/here", **lie}
        with rewritten(ledger, written + json.dumps(entry) + "\n"):
            assert broken(life) == {found}
    with rewritten(ledger, written.replace('"code": 0', '"code": 7')):
        assert broken(life) == {"false exit codes"}
    with rewritten(life.world.repository / "stray.txt", "not the person's"):
        assert broken(life) == {"damage"}
    life.tasks.append("zzzzzzzz")
    assert broken(life) == {"lost tasks"}


def test_the_same_seed_makes_the_same_choices_and_every_party_is_struck() -> None:
    assert list(islice(planned(60, "s"), 50)) == list(islice(planned(60, "s"), 50))
    assert list(islice(planned(60, "s"), 50)) != list(islice(planned(60, "t"), 50))
    assert {blow.party for _, blows in islice(planned(1000, "s"), 200) for blow in blows} == set(PARTIES)


def test_store_calls_are_gone_through_in_turn_before_and_after_each() -> None:
    faults = [blow.fault for _, blows in islice(planned(1000, "s"), 1000) for blow in blows if blow.fault]
    assert len(set(faults)) == len(faults)
    assert {fault.split(":")[1] for fault in faults} == {"before", "after"}


def test_a_world_stands_apart_from_the_users_own(tmp_path: Path) -> None:
    environ = worlds.World(tmp_path).environ
    assert environ["HOME"] == str(tmp_path)
    assert Path(environ["CODEFLEET_HOME"]).is_relative_to(tmp_path)
