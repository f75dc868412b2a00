"""Changing settings: only what was asked for changes, and what would be wrong changes nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.config import edit, files, initial, keys
from codefleet.config.document import Place as Where
from codefleet.config.keys import KEYS, Key
from codefleet.config.values import toml
from codefleet.core.errors import ConfigError, Failed

if TYPE_CHECKING:
    from tests.config.conftest import Place

WRITTEN = """\
# my machine
max_concurrent = 3   # not more

[limits]
# patience
attempts = 3

[agents.stub]   # mine
driver = "command"
command = ["a",   # first
  "b"]
"""


def _changed(before: str, *assignments: str, where: Where = Where.HOME) -> str:
    return edit.changed(before.encode(), "some.toml", where, edit.assigned(assignments))


def test_a_value_is_replaced_and_all_else_stays(place: Place) -> None:
    place.write_home(WRITTEN)
    edit.set_in_home(place.home, ["max_concurrent=5", "limits.attempts=7"])

    assert place.home.settings.read_text() == WRITTEN.replace("= 3   #", "= 5   #").replace(
        "attempts = 3", "attempts = 7"
    )


def test_new_keys_are_added_to_their_tables() -> None:
    after = _changed(
        WRITTEN, "limits.rounds=1", "agents.stub.timeout_seconds=9", "agents.other.driver=claude", "coder=stub"
    )

    assert after.startswith(WRITTEN[: WRITTEN.index("attempts")])
    assert tomllib.loads(after) == {
        "max_concurrent": 3,
        "limits": {"attempts": 3, "rounds": 1},
        "agents": {
            "stub": {"driver": "command", "command": ["a", "b"], "timeout_seconds": 9},
            "other": {"driver": "claude"},
        },
        "agent": {"default": "stub"},
    }


@pytest.mark.parametrize(
    ("before", "assignments", "after"),
    [
        ("[gates]\ntest = 'a' # t\nlint = 'b'\n", ["gates.test=c"], "[gates]\ntest = \"c\" # t\nlint = 'b'\n"),
        (
            "[gates]\ntest = 'a' # t\nlint = 'b'\n",
            ["gates.test.timeout_seconds=5"],
            "[gates]\ntest = {command = \"a\", timeout_seconds = 5} # t\nlint = 'b'\n",
        ),
        ("[gates.test]\ncommand = 'a'\n", ["gates.test=b"], '[gates.test]\ncommand = "b"\n'),
        ("limits = { rounds = 1 }\n", ["limits.attempts=2"], "limits = { rounds = 1, attempts = 2}\n"),
        ("limits.rounds = 1\n", ["limits.attempts=2"], "limits.rounds = 1\nlimits.attempts = 2\n"),
        ("# [agent]\n", ["max_concurrent=1"], "# [agent]\nmax_concurrent = 1\n"),
        ("", ["agents.claude.env=A=1"], '[agents.claude]\nenv = {A = "1"}\n'),
    ],
)
def test_every_way_to_write_toml_is_kept(before: str, assignments: list[str], after: str) -> None:
    assert _changed(before, *assignments) == after


@given(st.lists(st.sampled_from([key for key in KEYS if not key.project_only]), max_size=6, unique=True), st.data())
def test_what_was_set_is_what_the_file_says(chosen: list[Key], data: st.DataObject) -> None:
    values = {key.path: _some(key, data) for key in chosen if "*" not in key.path}
    after = edit.changed(initial.runtime_toml().encode(), "runtime.toml", Where.HOME, values)
    said = tomllib.loads(after)

    for path, value in values.items():
        here = said
        for part in path[:-1]:
            here = here[part]
        assert here[path[-1]] == value


def _some(key: Key, data: st.DataObject) -> object:
    """The default, or another value like it."""
    default = key.default()
    if isinstance(default, bool):
        return data.draw(st.booleans())
    if isinstance(default, int | float):
        return data.draw(st.integers(1, 1000))
    if isinstance(default, tuple):
        return data.draw(
            st.lists(st.text("ab .\"'\\\n", min_size=1, max_size=5).map(lambda text: "x" + text), max_size=3)
        )
    return default


def test_a_new_file_is_for_its_owner_alone(place: Place) -> None:
    assert edit.set_in_home(place.home, ["max_concurrent=2"]) == place.home.settings
    assert place.home.settings.read_text() == "max_concurrent = 2\n"
    assert place.home.settings.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in place.home.path.iterdir()] == ["runtime.toml"]


def test_a_link_stays_a_link(place: Place, tmp_path: Path) -> None:
    (tmp_path / "dotfile").write_text("# mine\n")
    place.home.settings.symlink_to(tmp_path / "dotfile")
    edit.set_in_home(place.home, ["max_concurrent=2"])

    assert place.home.settings.is_symlink()
    assert (tmp_path / "dotfile").read_text() == "# mine\nmax_concurrent = 2\n"


def test_a_projects_file_keeps_its_mode(place: Place) -> None:
    place.write_project("")
    (place.project / "codefleet.toml").chmod(0o640)
    edit.set_in_project(place.home, ["limits.attempts=2"], place.project)

    assert (place.project / "codefleet.toml").stat().st_mode & 0o777 == 0o640


def test_the_projects_file_that_is_there_is_the_one_that_changes(place: Place) -> None:
    place.write_project("", ".codefleet/config.toml")

    assert (
        edit.set_in_project(place.home, ["project.name=x"], place.project) == place.project / ".codefleet/config.toml"
    )
    assert not (place.project / "codefleet.toml").exists()


@pytest.mark.parametrize(
    ("assignment", "said", "hint"),
    [
        ("max_concurrent", "'max_concurrent' is no KEY=VALUE", ""),
        ("max_concurent=5", "unknown key max_concurent", "Did you mean max_concurrent?"),
        ("limits.attemps=5", "unknown key limits.attemps", "Did you mean limits.attempts?"),
        ("max_concurrent=many", "max_concurrent: a whole number from 0 is wanted, not 'many'", ""),
        ("max_concurrent=", "max_concurrent: a whole number from 0 is wanted, not ''", ""),
        ("project.name=x", "project.name belongs into a project's codefleet.toml", ""),
        ("limits=5", "unknown key limits", "Did you mean limits?"),
        ("=5", "'' is no key", ""),
        ("a b=5", "'a b' is no key", ""),
        ("agents.-x.model=5", "agents.-x: a name of letters", ""),
    ],
)
def test_what_makes_no_sense_is_refused(place: Place, assignment: str, said: str, hint: str) -> None:
    place.write_home(WRITTEN)
    with pytest.raises(ConfigError) as caught:
        edit.set_in_home(place.home, [assignment])

    assert said in caught.value.message
    assert caught.value.hint == hint
    assert place.home.settings.read_text() == WRITTEN


def _as_text(key: Key) -> str:
    default = key.default()
    return ",".join(default) if isinstance(default, tuple) else toml(default).strip('"')


@pytest.mark.parametrize("key", [key for key in KEYS if key.home_only], ids=lambda key: key.name)
def test_a_key_of_the_home_can_not_be_set_for_a_project(place: Place, key: Key) -> None:
    name = key.name.replace("*", "claude")
    with pytest.raises(ConfigError, match=r"belongs into the home's runtime.toml"):
        edit.set_in_project(place.home, [f"{name}={_as_text(key)}"], place.project)
    assert list(place.project.iterdir()) == []


def test_an_agent_type_that_nobody_knows_is_refused(place: Place) -> None:
    with pytest.raises(ConfigError, match="there is no agent type mycoder") as caught:
        edit.set_in_home(place.home, ["coder=mycoder"])
    assert "claude, scripted" in caught.value.hint

    edit.set_in_home(place.home, ["agents.mycoder.driver=command", "agents.mycoder.command=x", "coder=mycoder"])
    edit.set_in_project(place.home, ["agent.default=mycoder"], place.project)
    assert (place.project / "codefleet.toml").read_text() == '[agent]\ndefault = "mycoder"\n'


def test_a_projects_own_agent_type_may_be_the_homes_default(place: Place) -> None:
    place.write_project('[agents.own]\ndriver = "claude"\n')
    edit.set_in_home(place.home, ["coder=own"], place.project)

    assert place.of_home().agent.default == "own"


def test_a_broken_project_does_not_keep_a_person_from_the_home(place: Place) -> None:
    place.write_project("[limits]\nattempts = 0\n")
    edit.set_in_home(place.home, ["max_concurrent=2"], place.project)
    with pytest.raises(ConfigError, match=r"^codefleet.toml:2: "):
        edit.set_in_project(place.home, ["limits.rounds=1"], place.project)

    assert place.of_home().max_concurrent == 2


def test_values_that_do_not_go_together_are_refused(place: Place) -> None:
    with pytest.raises(ConfigError, match="heartbeat_interval"):
        edit.set_in_home(place.home, ["heartbeat_interval=200"])
    with pytest.raises(ConfigError, match="has no command"):
        edit.set_in_home(place.home, ["agents.x.driver=command"])
    assert not place.home.settings.exists()


def test_a_broken_file_is_not_changed_by_a_program(place: Place) -> None:
    place.write_home("max_concurrent = \n")
    with pytest.raises(ConfigError, match=r"^runtime.toml:1: this is no valid TOML"):
        edit.set_in_home(place.home, ["max_concurrent=2"])

    assert place.home.settings.read_text() == "max_concurrent = \n"


def test_settings_that_can_not_be_written_are_said_to_be_so(place: Place) -> None:
    (place.project / "file").write_text("")
    with pytest.raises(Failed, match=r"file/below can not be written"):
        files.replace_file(place.project / "file" / "below", "x", 0o600)

    place.home.settings.mkdir()
    with pytest.raises(ConfigError, match=r"runtime.toml can not be read"):
        edit.set_in_home(place.home, ["max_concurrent=2"])


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(place: Place) -> None:
    place.write_home("# old\n")
    program = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        from codefleet.config.files import replace_file
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))
        replace_file(Path(sys.argv[1]), "more than fits", 0o600)
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program, place.home.settings], check=False, capture_output=True, text=True, timeout=60
    )

    assert "runtime.toml can not be written: File too large" in ended.stderr
    assert [entry.name for entry in place.home.path.iterdir()] == ["runtime.toml"]
    assert place.home.settings.read_text() == "# old\n"


def test_many_who_set_at_once_lose_nothing(place: Place) -> None:
    names = [f"gate{number}" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: edit.set_in_project(place.home, [f"gates.{name}=true"], place.project), names))

    assert set(tomllib.loads((place.project / "codefleet.toml").read_text())["gates"]) == set(names)


def test_reading_settings_does_not_load_what_changes_them() -> None:
    program = (
        "import sys, codefleet.config; print([name for name in ('tomlkit', 'apsw', 'click') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)

    assert shown.stdout == "[]\n"


def test_all_flat_names_can_be_set() -> None:
    where = {alias: Where.HOME if key.home_only else Where.PROJECT for alias, key in keys.ALIASES.items()}
    for alias, key in keys.ALIASES.items():
        after = _changed("", f"{alias}={_as_text(key)}", where=where[alias])

        assert _leaves(tomllib.loads(after)) == [key.path]


def _leaves(table: dict[str, object], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [
        leaf
        for name, value in table.items()
        for leaf in (_leaves(value, (*above, name)) if isinstance(value, dict) else [(*above, name)])
    ]
