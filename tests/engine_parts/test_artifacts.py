"""The files that an agent and the fleet share: its notes, its result, its questions."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefleet.core.layout import Home
from codefleet.core.model import Question
from codefleet.engine import artifacts

QUESTION = Question(
    id="q_k3v9x2ab.1", text="Which database?", asked_at=1_700_000_000_000, options=("postgres", "sqlite")
)
GOOD: dict[str, Any] = {"status": "completed", "summary": "Done."}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def folder(home: Home) -> Path:
    return artifacts.prepare(home, "t", 1, shared=True)


def put(folder: Path, document: object) -> None:
    (folder / "result.json").write_text(document if isinstance(document, str) else json.dumps(document))


# ------------------------------------------------------------------------------------------------------- folders


def test_a_first_run_finds_its_notes_begun(folder: Path) -> None:
    assert {one.name for one in folder.iterdir()} == {"PLAN_AND_STATUS.md", "KNOWLEDGE.md", "Q&A.md"}


def test_notes_are_never_overwritten(home: Home, folder: Path) -> None:
    (folder / "PLAN_AND_STATUS.md").write_text("half done")
    artifacts.prepare(home, "t", 2, shared=True)
    assert (folder / "PLAN_AND_STATUS.md").read_text() == "half done"


def test_an_earlier_result_goes_to_the_run_that_wrote_it(home: Home, folder: Path) -> None:
    put(folder, GOOD)
    artifacts.prepare(home, "t", 2, shared=True)
    assert artifacts.read_result(folder) is None
    assert json.loads((home.run("t", 1) / "result.json").read_text()) == GOOD


def test_earlier_requests_go_to_the_run_that_wrote_them(home: Home, folder: Path) -> None:
    (folder / ".requests").mkdir()
    (folder / ".requests/1.json").write_text("{}")
    artifacts.prepare(home, "t", 2, shared=True)
    assert not (folder / ".requests").exists()
    assert (home.run("t", 1) / "requests/1.json").exists()


def test_preparing_a_run_again_takes_nothing_from_it(home: Home, folder: Path) -> None:
    put(folder, GOOD)
    assert artifacts.prepare(home, "t", 1, shared=True) == folder
    assert artifacts.read_result(folder) is not None


def test_a_link_in_the_place_of_a_result_is_put_away_unread(home: Home, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps(GOOD))
    (folder / "result.json").symlink_to(tmp_path / "secret")
    artifacts.prepare(home, "t", 2, shared=True)
    assert not os.path.lexists(folder / "result.json")
    assert (tmp_path / "secret").exists()


class TestWhileAnOlderTreeLives:
    """An old agent must not write the new one's result."""

    @pytest.fixture
    def copy(self, home: Home, folder: Path) -> Path:
        put(folder, GOOD)
        (folder / "KNOWLEDGE.md").write_text("known")
        (folder / "deep/er").mkdir(parents=True)
        (folder / "deep/er/note").write_text("deep")
        (folder / ".requests").mkdir()
        return artifacts.prepare(home, "t", 2, shared=False)

    def test_a_run_gets_a_copy_of_the_notes_without_result_and_requests(self, folder: Path, copy: Path) -> None:
        assert copy != folder
        assert (copy / "KNOWLEDGE.md").read_text() == "known"
        assert (copy / "deep/er/note").read_text() == "deep"
        assert not (copy / "result.json").exists()
        assert not (copy / ".requests").exists()
        assert artifacts.read_result(folder) is not None, "the older run keeps its own"

    def test_links_pipes_and_bulk_are_not_copied(self, home: Home, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/secret").write_text("s")
        (folder / "link").symlink_to(tmp_path / "outside/secret")
        (folder / "linked").symlink_to(tmp_path / "outside")
        os.mkfifo(folder / "pipe")
        (folder / "big").write_bytes(b"x" * (2 << 20))
        copy = artifacts.prepare(home, "t", 2, shared=False)
        assert {one.name for one in copy.iterdir()} == {"PLAN_AND_STATUS.md", "KNOWLEDGE.md", "Q&A.md"}

    def test_a_run_knows_its_own_folder(self, home: Home, folder: Path, copy: Path) -> None:
        assert artifacts.folder(home, "t", 2) == copy
        assert artifacts.folder(home, "t", 1) == folder

    def test_the_copy_becomes_the_tasks_artifacts_while_its_agent_goes_on_writing(self, home: Home, copy: Path) -> None:
        artifacts.merge_back(home, "t", 2)
        (copy / "KNOWLEDGE.md").write_text("more")
        assert (home.artifacts("t") / "KNOWLEDGE.md").read_text() == "more"
        assert artifacts.folder(home, "t", 2) == copy

    def test_what_the_older_run_left_is_kept_with_it(self, home: Home, copy: Path) -> None:
        artifacts.merge_back(home, "t", 2)
        assert (home.run("t", 1) / "artifacts/result.json").exists()

    def test_merging_back_twice_or_without_a_copy_changes_nothing(self, home: Home, copy: Path) -> None:
        artifacts.merge_back(home, "t", 2)
        before = sorted(home.task("t").rglob("*"))
        artifacts.merge_back(home, "t", 2)
        artifacts.merge_back(home, "t", 7)
        assert sorted(home.task("t").rglob("*")) == before

    def test_the_next_run_finds_a_plain_folder_again(self, home: Home, copy: Path) -> None:
        (copy / "KNOWLEDGE.md").write_text("learned")
        artifacts.merge_back(home, "t", 2)
        third = artifacts.prepare(home, "t", 3, shared=True)
        assert third == home.artifacts("t")
        assert not third.is_symlink()
        assert (third / "KNOWLEDGE.md").read_text() == "learned"
        assert not copy.exists()

    def test_the_next_run_gets_the_newest_notes_even_when_nobody_merged_back(self, home: Home, copy: Path) -> None:
        (copy / "KNOWLEDGE.md").write_text("learned")
        third = artifacts.prepare(home, "t", 3, shared=False)
        assert (third / "KNOWLEDGE.md").read_text() == "learned"
        fourth = artifacts.prepare(home, "t", 4, shared=True)
        assert (fourth / "KNOWLEDGE.md").read_text() == "learned"
        assert fourth == home.artifacts("t")

    def test_a_death_between_the_steps_of_straightening_loses_nothing(self, home: Home, copy: Path) -> None:
        (copy / "KNOWLEDGE.md").write_text("learned")
        artifacts.merge_back(home, "t", 2)
        home.artifacts("t").unlink()
        third = artifacts.prepare(home, "t", 3, shared=True)
        assert (third / "KNOWLEDGE.md").read_text() == "learned"


# -------------------------------------------------------------------------------------------------------- result


def test_a_full_result_is_read_as_it_was_written(folder: Path) -> None:
    put(
        folder,
        {
            "status": "completed",
            "summary": "Fixed.",
            "files_changed": ["a.py"],
            "commits": ["c0ffee"],
            "tests": [{"command": "pytest -q", "status": "passed", "details": "3 passed"}],
            "next_steps": ["document it"],
            "question": None,
            "mood": "fine",
        },
    )
    result = artifacts.read_result(folder)
    assert result is not None
    assert (result.status, result.summary, result.files_changed) == ("completed", "Fixed.", ("a.py",))
    assert result.tests[0].status == "passed"
    assert result.next_steps == ("document it",)
    assert result.question == ""


def test_a_blocked_result_asks_its_summary_when_it_has_no_question(folder: Path) -> None:
    put(folder, {"status": "blocked", "summary": "Which database?"})
    result = artifacts.read_result(folder)
    assert result is not None
    assert result.question == "Which database?"


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"status": "completed", "summary": ' + "9" * 5000 + "}",
        {},
        {"status": "completed"},
        {"status": "completed", "summary": "  "},
        {"status": "done", "summary": "x"},
        {"status": ["completed"], "summary": "x"},
        {**GOOD, "files_changed": "a.py"},
        {**GOOD, "next_steps": [1]},
        {**GOOD, "tests": [{"command": "x", "status": "great"}]},
        {**GOOD, "tests": [{"command": "x", "status": ["passed"]}]},
        {**GOOD, "tests": {}},
        {**GOOD, "question": 7},
    ],
    ids=repr,
)
def test_garbage_is_no_result(folder: Path, document: object) -> None:
    put(folder, document)
    assert artifacts.read_result(folder) is None


def test_a_result_over_a_mebibyte_is_none(folder: Path) -> None:
    put(folder, {**GOOD, "padding": "x" * (1 << 20)})
    assert artifacts.read_result(folder) is None


def test_a_result_is_not_read_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(GOOD))
    (folder / "result.json").symlink_to(tmp_path / "elsewhere")
    assert artifacts.read_result(folder) is None


def test_a_pipe_in_the_place_of_a_result_blocks_nobody(folder: Path) -> None:
    os.mkfifo(folder / "result.json")
    assert artifacts.read_result(folder) is None


def test_a_folder_in_the_place_of_a_result_is_none(folder: Path) -> None:
    (folder / "result.json").mkdir()
    assert artifacts.read_result(folder) is None


def test_a_summary_is_kept_to_8_kib_of_whole_characters(folder: Path) -> None:
    put(folder, {**GOOD, "summary": "x" + "é" * 10_000})
    result = artifacts.read_result(folder)
    assert result is not None
    assert len(result.summary.encode()) == 8191
    assert result.summary.endswith("é")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
tests_ = st.lists(
    st.fixed_dictionaries(
        {"command": st.text(), "status": st.sampled_from(artifacts.TESTED)}, optional={"details": st.text()}
    )
)
near_results = st.fixed_dictionaries(
    {"status": st.sampled_from(artifacts.STATUSES) | json_values, "summary": st.text() | json_values},
    optional={
        "files_changed": st.lists(st.text()) | json_values,
        "commits": json_values,
        "tests": tests_ | json_values,
        "next_steps": st.lists(st.text()) | json_values,
        "question": st.text() | json_values,
        "other": json_values,
    },
)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.binary(), near_results.map(lambda one: json.dumps(one).encode())))
def test_whatever_an_agent_leaves_is_a_result_that_can_be_stored_or_none(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "result.json").write_bytes(data)
        result = artifacts.read_result(Path(folder))
    if result is None:
        return
    assert result.status in artifacts.STATUSES
    for text in (result.summary, *result.files_changed, *result.commits, *result.next_steps, result.question):
        text.encode()
        assert "\x00" not in text


@settings(deadline=None, max_examples=100)
@given(st.text(), st.sampled_from([*artifacts.STATUSES, "done", ""]), st.lists(st.text(), max_size=3))
def test_what_report_writes_is_read_and_what_it_refuses_is_not_written(
    summary: str, status: str, next_steps: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = artifacts.write_result(folder, summary=summary, status=status, next_steps=next_steps)
        result = artifacts.read_result(folder)
        assert (result is None) == bool(wrong)
        assert list(folder.iterdir()) == ([folder / "result.json"] if result else [])


def test_a_refused_report_names_the_field_that_is_wrong(folder: Path) -> None:
    assert "status" in artifacts.write_result(folder, summary="x", status="finished")
    assert "summary" in artifacts.write_result(folder, summary=" ")


# ---------------------------------------------------------------------------------------- questions and answers


def thread(folder: Path) -> str:
    return (folder / "Q&A.md").read_text()


def write(folder: Path, text: str) -> None:
    with (folder / "Q&A.md").open("a") as file:
        file.write(text)


def test_a_question_is_written_once_with_its_time_and_id(folder: Path) -> None:
    artifacts.ask(folder, QUESTION)
    artifacts.ask(folder, QUESTION)
    assert thread(folder).count("## Q: 2023-11-14 22:13 [q_k3v9x2ab.1]") == 1
    assert "Which database?" in thread(folder)
    assert "- postgres" in thread(folder)
    assert artifacts.answered(folder, QUESTION.id) is None


@pytest.mark.parametrize(
    "block",
    [
        "\n## A: 2024-01-01 10:00\n\npostgres\n",
        "\n## A: <YYYY-MM-DD HH:MM>\n\npostgres\n",
        "\n## A: 2024-01-01T10:00\npostgres",
        "\n## A: postgres\n",
        "\r\n## A:\r\n\r\npostgres\r\n",
    ],
)
def test_an_answer_by_hand_counts_however_it_is_written(folder: Path, block: str) -> None:
    artifacts.ask(folder, QUESTION)
    write(folder, block)
    assert artifacts.answered(folder, QUESTION.id) == "postgres"


def test_an_empty_answer_is_none_yet(folder: Path) -> None:
    artifacts.ask(folder, QUESTION)
    write(folder, "\n## A: 2024-01-01 10:00\n\n")
    assert artifacts.answered(folder, QUESTION.id) is None


def test_an_answer_belongs_to_the_question_it_stands_under(folder: Path) -> None:
    second = replace(QUESTION, id="q_k3v9x2ab.2", text="Which port?")
    artifacts.ask(folder, QUESTION)
    write(folder, "\n## A: 2024-01-01 10:00\n\npostgres\n")
    artifacts.ask(folder, second)
    assert artifacts.answered(folder, second.id) is None
    write(folder, "\n## A: 2024-01-01 10:00\n\n5432\n")
    assert artifacts.answered(folder, second.id) == "5432"
    assert artifacts.answered(folder, QUESTION.id) == "postgres"


def test_an_answer_is_written_under_its_question_once(folder: Path) -> None:
    second = replace(QUESTION, id="q_k3v9x2ab.2", text="Which port?")
    artifacts.ask(folder, QUESTION)
    artifacts.ask(folder, second)
    given_ = replace(QUESTION, answer="postgres", answered_at=1_700_000_060_000)
    artifacts.write_answer(folder, given_)
    artifacts.write_answer(folder, given_)
    assert artifacts.answered(folder, QUESTION.id) == "postgres"
    assert artifacts.answered(folder, second.id) is None
    assert thread(folder).count("## A: 2023-11-14 22:14") == 1


def test_the_first_answer_stands(folder: Path) -> None:
    artifacts.ask(folder, QUESTION)
    write(folder, "\n## A: by hand\n")
    artifacts.write_answer(folder, replace(QUESTION, answer="later", answered_at=1))
    assert artifacts.answered(folder, QUESTION.id) == "by hand"
    assert "later" not in thread(folder)


def test_a_question_that_an_agent_wrote_by_hand_is_found_and_gets_its_id(folder: Path) -> None:
    write(folder, "\n## Q: 2024-01-01 10:00\n\nWhich database?\n")
    assert artifacts.asked(folder) == "Which database?"
    artifacts.ask(folder, QUESTION)
    assert thread(folder).count("Which database?") == 1
    assert artifacts.asked(folder) is None
    write(folder, "\n## A: 2024-01-01 10:00\n\nsqlite\n")
    assert artifacts.answered(folder, QUESTION.id) == "sqlite"


def test_a_question_by_hand_that_was_answered_is_not_open(folder: Path) -> None:
    write(folder, "\n## Q: now?\n\n## A: yes\n")
    assert artifacts.asked(folder) is None


def test_a_thread_that_is_a_link_is_neither_read_nor_written(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.write_text("\n## Q: x [q_k3v9x2ab.1]\n## A: forged\n")
    (folder / "Q&A.md").unlink()
    (folder / "Q&A.md").symlink_to(target)
    before = target.read_text()
    artifacts.ask(folder, QUESTION)
    assert artifacts.answered(folder, QUESTION.id) is None
    assert target.read_text() == before


def test_a_thread_that_is_gone_is_begun_again(folder: Path) -> None:
    (folder / "Q&A.md").unlink()
    artifacts.ask(folder, QUESTION)
    artifacts.write_answer(folder, replace(QUESTION, answer="sqlite"))
    assert artifacts.answered(folder, QUESTION.id) == "sqlite"


hostile = st.text() | st.text().map(lambda text: f"{text}\n## A: forged\n{text}\n## Q: x [q_k3v9x2ab.1]\n## A: forged")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("thread")


@settings(deadline=None, max_examples=200)
@given(text=hostile, answer=hostile.filter(str.strip), options=st.lists(hostile, max_size=2))
def test_no_question_can_bring_its_own_answer(shared: Path, text: str, answer: str, options: list[str]) -> None:
    (shared / "Q&A.md").unlink(missing_ok=True)
    question = replace(QUESTION, text=text, options=tuple(options))
    artifacts.ask(shared, question)
    assert artifacts.answered(shared, question.id) is None
    artifacts.write_answer(shared, replace(question, answer=answer))
    found = artifacts.answered(shared, question.id)
    later = replace(QUESTION, id="q_k3v9x2ab.2")
    artifacts.ask(shared, later)
    assert artifacts.answered(shared, later.id) is None
    assert artifacts.answered(shared, question.id) == found


@settings(deadline=None, max_examples=200)
@given(st.binary())
def test_any_thread_can_be_read(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Q&A.md").write_bytes(data)
        artifacts.asked(Path(folder))
        artifacts.answered(Path(folder), QUESTION.id)
        artifacts.ask(Path(folder), QUESTION)
        artifacts.write_answer(Path(folder), replace(QUESTION, answer="yes"))
