"""`add` and `edit`: what a person asks for is stored exactly, or refused with nothing stored."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from codefleet.core.drafts import ALPHABET, ID_LENGTH
from codefleet.testing import samples

if TYPE_CHECKING:
    from tests.surfaces.conftest import Person


def test_a_task_is_answered_with_its_id_title_priority_and_status(person: Person) -> None:
    said = person("add", "Fix authentication timeout", "-p", "5")
    assert said.code == 0
    [key] = person.ids()
    assert len(key) == ID_LENGTH
    assert set(key) <= set(ALPHABET)
    assert said.out == f"{key}  pending  priority 5  Fix authentication timeout\n"


def test_the_documented_add_task_runs_literally(person: Person) -> None:
    said = person(
        *("add-task", "--title", "Fix authentication timeout", "--description", "JWT validation race condition"),
        *("--priority", "5", "--labels", "bug,auth", "--file-scope", "src/auth/**,tests/auth/**", "--json"),
    )
    task = said.data
    assert (task["title"], task["priority"], task["status"]) == ("Fix authentication timeout", 5, "pending")
    assert task["labels"] == ["bug", "auth"]
    assert task["file_scope"] == ["src/auth/**", "tests/auth/**"]
    assert task["description"] == "JWT validation race condition"


@pytest.mark.parametrize(
    "text",
    [
        "users can't login $(touch x) `touch y`; rm -rf ~",
        "Grüße 🚀 👩‍👩‍👧 日本語",
        "a/branch/like/this",
        "--looks-like-nothing",
        "%s {title} \\n",
    ],
)
def test_a_title_is_kept_exactly_whatever_it_holds(person: Person, text: str) -> None:
    key = person.added("placeholder", "-d", text)
    assert person("edit", key, "--title", text, "--json").data["title"] == text
    assert person("show", key, "--json").data["description"] == text
    assert sorted(path.name for path in person.cwd.iterdir()) == [".git", "README.md"]


def test_a_description_of_one_megabyte_comes_by_stdin_and_comes_back_whole(person: Person) -> None:
    text = "ä" * ((1 << 20) // 2)
    said = person("add", "Read this", "-d", "-", "--json", stdin=text)
    assert said.code == 0
    assert person("show", said.data["id"], "--json").data["description"] == text


NUL, LONE = "a\0b", "a\udcffb"
REFUSED: list[tuple[str, list[str], str]] = [
    ("no title", ["add"], "the title is missing"),
    ("empty title", ["add", ""], "the title is empty"),
    ("blank title", ["add", "  \t "], "the title is empty"),
    ("two titles", ["add", "a", "--title", "b"], "twice"),
    ("lines in a title", ["add", "a\nb"], "control character"),
    ("escape in a title", ["add", "a\x1b[31mb"], "control character"),
    ("NUL in a title", ["add", NUL], "NUL"),
    ("NUL in a description", ["add", "a", "-d", NUL], "NUL"),
    ("NUL in a label", ["add", "a", "-l", NUL], "NUL"),
    ("bytes that are no text", ["add", LONE], "UTF-8"),
    ("a long title", ["add", "x" * 301], "300"),
    ("priority 9", ["add", "a", "-p", "9"], "out of range"),
    ("priority 0", ["add", "a", "-p", "0"], "out of range"),
    ("priority x", ["add", "a", "-p", "x"], "not a valid integer"),
    ("unknown size", ["add", "a", "-c", "huge"], "complexity"),
    ("unknown expectation", ["add", "a", "--expects", "wonders"], "expected outcome"),
    ("unknown dependency", ["add", "a", "--depends-on", "zzzzzzzz"], "zzzzzzzz"),
    ("scope outside", ["add", "a", "-f", "../other/**"], "leaves the project"),
    ("absolute scope", ["add", "a", "-f", "/etc/**"], "leaves the project"),
    ("unknown agent", ["add", "a", "--agent", "cloude"], "did you mean claude"),
    ("unknown option", ["add", "a", "--bugdet", "3"], "--bugdet"),
    ("no such project", ["add", "a", "--project", "nowhere"], "nowhere"),
]


@pytest.mark.parametrize(("args", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_makes_no_sense_is_refused_with_a_hint_and_nothing_is_stored(
    person: Person, args: list[str], words: str
) -> None:
    said = person(*args)
    assert said.code == (3 if "nowhere" in args else 2)
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert words in said.err
    assert person.ids() == []


def test_more_than_a_megabyte_is_refused(person: Person) -> None:
    said = person("add", "a", "-d", "-", stdin="x" * ((1 << 20) + 1))
    assert said.code == 2
    assert "1048577 bytes" in said.err
    assert person.ids() == []


def test_a_task_waits_for_what_it_depends_on_by_any_unique_beginning(person: Person) -> None:
    first = person.added("First")
    second = person("add", "Second", "--depends-on", first[:6], "--json").data
    assert (second["status"], second["blocked_by"], second["depends_on"]) == ("blocked", [first], [first])


def test_an_ambiguous_dependency_is_refused_with_the_list(person: Person) -> None:
    person.store(*(replace(samples.pending(), id=name) for name in ("abcd1234", "abcx0000")))
    said = person("add", "x", "--depends-on", "abc")
    assert said.code == 2
    assert "abcd1234, abcx0000" in said.err
    assert len(person.ids()) == 2


def test_a_circle_of_dependencies_is_refused_and_named(person: Person) -> None:
    first = person.added("First")
    second = person.added("Second", "--depends-on", first)
    third = person.added("Third", "--depends-on", second)
    said = person("edit", first, "--depends-on", third, "--title", "Other")
    assert said.code == 2
    assert f"{first} → {third} → {second} → {first}" in said.err
    shown = person("show", first, "--json").data
    assert (shown["depends_on"], shown["title"], shown["status"]) == ([], "First", "pending")
    assert person("edit", first, "--depends-on", first).code == 2


def test_an_edit_is_done_whole_or_not_at_all(person: Person) -> None:
    key = person.added("First", "-p", "2")
    said = person("edit", key, "--title", "Other", "-p", "9")
    assert said.code == 2
    shown = person("show", key, "--json").data
    assert (shown["title"], shown["priority"]) == ("First", 2)


def test_a_dependency_can_be_taken_away(person: Person) -> None:
    first = person.added("First")
    second = person.added("Second", "--depends-on", first)
    after = person("edit", second, "--depends-on", "", "--json").data
    assert (after["status"], after["depends_on"]) == ("pending", [])


def test_a_cancelled_dependency_holds_the_task_and_its_retry_lifts_that(person: Person) -> None:
    first = person.added("First")
    second = person.added("Second", "--depends-on", first)
    person("cancel", first)
    held = person("show", second, "--json").data
    assert (held["status"], held["hold"]["kind"], held["hold"]["on"]) == ("blocked", "upstream", first)
    assert f"codefleet retry {first}" in person("why", second).out
    person("retry", first)
    assert person("show", second, "--json").data["hold"] is None


def test_a_task_on_a_cancelled_dependency_is_held_from_the_start(person: Person) -> None:
    first = person.added("First")
    person("cancel", first)
    task = person("add", "Second", "--depends-on", first, "--json").data
    assert (task["status"], task["hold"]["kind"]) == ("blocked", "upstream")


def test_hold_and_unhold_are_a_persons_word(person: Person) -> None:
    key = person.added("First")
    person("edit", key, "--hold", "wait for the design")
    assert "wait for the design" in person("why", key).out
    assert person("tasks", "--ready", "--json").data == []
    assert person("edit", key, "--hold", "x", "--unhold").code == 2
    person("edit", key, "--unhold")
    assert [task["id"] for task in person("tasks", "--ready", "--json").data] == [key]


def test_next_goes_before_every_priority(person: Person) -> None:
    person.added("Urgent", "-p", "5")
    first = person.added("Now", "-p", "1", "--next")
    assert person.ids()[0] == first


def test_tasks_come_by_priority_and_then_by_age(person: Person) -> None:
    low, high = person.added("a", "-p", "1"), person.added("b", "-p", "5")
    middle, late = person.added("c"), person.added("d")
    assert person.ids() == [high, middle, late, low]


def test_the_order_of_a_task_is_written_where_its_agent_will_be_asked_for(person: Person) -> None:
    key = person.added("First", "--coder", "scripted", "--model", "m1")
    order: dict[str, Any] = json.loads((person.home.task(key) / "task.json").read_text())
    assert order == {"cwd": str(person.cwd), "coder": "scripted", "model": "m1"}


def test_a_nearly_equal_title_is_pointed_out(person: Person) -> None:
    key = person.added("Fix the login page")
    said = person("add", "fix the Login page!")
    assert said.code == 0
    assert f"nearly the same: {key}" in said.err


def test_the_first_task_of_a_repository_makes_its_project_and_says_that_nothing_proves_it(person: Person) -> None:
    said = person("add", "First")
    assert "is known from now on" in said.err
    assert "unproven" in said.err
    assert "known from now on" not in person("add", "Second").err


def test_two_people_who_add_at_once_make_one_project_and_lose_no_task(person: Person) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: person.program("add", f"Task {n}", "--json"), range(4)))
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    made = [json.loads(one.stdout)["data"] for one in done]
    assert len({task["id"] for task in made}) == 4
    assert len({task["project"] for task in made}) == 1
    assert sorted(person.ids()) == sorted(task["id"] for task in made)


def test_a_folder_without_git_is_a_project_too(person: Person) -> None:
    folder = person.cwd.parent / "plain"
    folder.mkdir()
    said = person("-C", str(folder), "add", "First", "--json")
    assert said.code == 0
    assert said.data["cwd"] == str(folder)
    assert "agents work in the folder itself" in said.err
    assert "codefleet init" not in said.err


def test_a_task_that_will_wait_for_trust_says_so(person: Person) -> None:
    (person.cwd / "codefleet.toml").write_text('[gates]\ntest = "true"\n')
    said = person("add", "First")
    assert "with 0 gates" not in said.err
    assert f"`codefleet trust {person.cwd}`" in said.err
    person("trust", "--yes")
    assert "trust" not in person("add", "Second").err


def test_a_task_remembers_the_folder_inside_its_project(person: Person) -> None:
    inner = person.cwd / "src" / "inner"
    inner.mkdir(parents=True)
    first = person("add", "First", "--json").data
    second = person("-C", "src/inner", "add", "Second", "--json").data
    assert first["project"] == second["project"]
    assert second["cwd"] == str(inner)


def test_a_repository_that_has_moved_keeps_its_project(person: Person) -> None:
    before = person("add", "First", "--json").data["project"]
    there = person.cwd.parent / "elsewhere" / "project"
    there.parent.mkdir()
    person.cwd.rename(there)
    person.cwd = there
    assert person("add", "Second", "--json").data["project"] == before
