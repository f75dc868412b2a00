"""The files that an agent and the fleet share: notes, questions and answers, and the result.

All that an agent writes is data: links are not followed, sizes are bounded, garbage is as good as nothing.
Loads only the standard library at once: `codefleet agent report` starts with it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from codefleet.engine import files

if TYPE_CHECKING:
    from codefleet.core.layout import Home
    from codefleet.core.model import Question, Result

RESULT = "result.json"
QUESTIONS = "Q&A.md"
REQUESTS = ".requests"
STUBS = {
    "PLAN_AND_STATUS.md": "# Plan and status\n\nNothing is planned yet.\n",
    "KNOWLEDGE.md": "# Knowledge\n\nWhat the next one should know. Only add to it.\n",
    QUESTIONS: "# Questions and answers\n",
}
STATUSES = ("completed", "blocked", "completed_no_changes")
LISTS = ("files_changed", "commits", "next_steps")
TESTED = ("passed", "failed", "not_run")
MOST_SUMMARY = 8 << 10
_MOST_TEXT, _MOST_ITEMS, _MOST_BLOCK = 2 << 10, 500, 64 << 10


# ------------------------------------------------------------------------------------------------------- folders


def prepare(home: Home, task: str, number: int, *, shared: bool) -> Path:
    """The artifacts folder for a run, with its stubs and without an earlier result. Not `shared`, because an older
    run's tree may still write: a copy of its own. For a run that has been prepared it only says where."""
    done = home.run(task, number) / ".prepared"
    if done.exists():
        return folder(home, task, number)
    made = home.artifacts(task) if shared else home.artifacts(task, number)
    if shared:
        _straighten(home, task)
    elif not made.exists():
        _copy(_newest(home, task), made)
    made.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in STUBS.items():
        _stub(made / name, text)
    _put_away(made, home.run(task, number - 1))
    done.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    done.touch()
    return made


def folder(home: Home, task: str, number: int) -> Path:
    """The artifacts folder that a run was given."""
    own = home.artifacts(task, number)
    return own if own.is_dir() else home.artifacts(task)


def merge_back(home: Home, task: str, number: int) -> None:
    """Let the copy that a run was given be the task's artifacts, now that no older run can write. Its agent may be
    at work, so the copy stays where it is and `artifacts` points to it; the next `prepare` moves it."""
    own, common = home.artifacts(task, number), home.artifacts(task)
    if not own.is_dir() or own.is_symlink() or _points(common) == own.name:
        return
    if common.is_dir() and not common.is_symlink():
        _aside(common, home.run(task, number - 1) / "artifacts")
    link = common.with_name(f".artifacts.{number}")
    link.unlink(missing_ok=True)
    link.symlink_to(own.name)
    link.replace(common)


def _points(common: Path) -> str:
    return common.readlink().name if common.is_symlink() else ""


def _straighten(home: Home, task: str) -> None:
    """Make `artifacts` a folder again after copies; the newest one counts, others are kept with their runs."""
    common, copies = home.artifacts(task), _copies(home, task)
    if not copies:
        return
    if common.is_symlink():
        common.unlink()
    newest = copies.pop()
    if common.is_dir():
        _aside(common, home.run(task, _run_of(newest)) / "artifacts")
    newest.rename(common)
    for old in copies:
        _aside(old, home.run(task, _run_of(old)) / "artifacts")


def _newest(home: Home, task: str) -> Path:
    return next(reversed(_copies(home, task)), home.artifacts(task))


def _copies(home: Home, task: str) -> list[Path]:
    """The copies that runs were given, oldest first."""
    found = [
        one for one in home.task(task).glob("artifacts.*") if _run_of(one) and one.is_dir() and not one.is_symlink()
    ]
    return sorted(found, key=_run_of)


def _run_of(copy: Path) -> int:
    ending = copy.name.removeprefix("artifacts.")
    return int(ending) if ending.isascii() and ending.isdigit() else 0


def _aside(folder: Path, to: Path) -> None:
    """Keep a folder that is not in use any more, under the first name that is free."""
    to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    n = 0
    while (free := to.with_name(f"{to.name}.{n}" if n else to.name)).exists():
        n += 1
    folder.rename(free)


def _copy(source: Path, to: Path) -> None:
    """The plain files of a folder, small enough to be notes; requests and the result stay with the older run."""
    draft = to.with_name(f".{to.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    for folder, inner, names in os.walk(source):
        inner[:] = [name for name in inner if name != REQUESTS and not (Path(folder) / name).is_symlink()]
        into = draft / Path(folder).relative_to(source)
        into.mkdir(exist_ok=True, mode=0o700)
        for name in names:
            data = files.read(Path(folder) / name)
            if data is not None and name != RESULT:
                (into / name).write_bytes(data)
    draft.rename(to)


def _stub(path: Path, text: str) -> None:
    with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write(text)


def _put_away(folder: Path, run: Path) -> None:
    """An earlier run's result and requests go to that run."""
    if not (os.path.lexists(folder / RESULT) or os.path.lexists(folder / REQUESTS)):
        return
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, to in ((RESULT, run / RESULT), (REQUESTS, run / "requests")):
        if os.path.lexists(folder / name):
            _aside(folder / name, to)


# -------------------------------------------------------------------------------------------------------- result


def read_result(folder: Path) -> Result | None:
    """What the agent says it did; None when there is no result, or none of the right form."""
    document = parse(files.read(folder / RESULT))
    return None if document is None or problem(document) else _result(document)


def write_result(
    folder: Path,
    *,
    summary: str,
    status: str = "completed",
    next_steps: Sequence[str] = (),
    question: str = "",
) -> str:
    """Write a result of the right form; else what is wrong with it, and nothing is written."""
    document = {
        "status": status,
        "summary": summary,
        "files_changed": [],
        "commits": [],
        "tests": [],
        "next_steps": list(next_steps),
        "question": question,
    }
    wrong = problem(document)
    if not wrong:
        files.write(
            folder / RESULT, json.dumps(document, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"
        )
    return wrong


def parse(data: bytes | None) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    if data is None:
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def problem(document: Mapping[str, Any]) -> str:
    """Which field of a result is wrong; empty when none is. Keys that are not known are ignored."""
    if document.get("status") not in STATUSES:
        return f"status must be one of {', '.join(STATUSES)}"
    summary = document.get("summary")
    if not isinstance(summary, str) or not summary.strip():
        return "summary must be a text that says what was done"
    for name in LISTS:
        if not all(isinstance(one, str) for one in _list(document, name)):
            return f"{name} must be a list of texts"
    if not isinstance(document.get("question") or "", str):
        return "question must be a text"
    return "" if all(map(_is_test, _list(document, "tests"))) else "tests must be a list of {command, status, details}"


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    """A list of the document, empty when it was left out; a list that holds what nobody may hold when it is none."""
    value = document.get(name)
    return value if isinstance(value, list) else [] if value is None else [None]


def _is_test(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("command"), str)
        and value.get("status") in TESTED
        and isinstance(value.get("details") or "", str)
    )


def _result(document: Mapping[str, Any]) -> Result:
    from codefleet.core.model import Result, TestReport

    status, summary = document["status"], cut(document["summary"], MOST_SUMMARY)
    question = cut(document.get("question") or "", MOST_SUMMARY)
    tests = tuple(
        TestReport(
            command=cut(one["command"], _MOST_TEXT),
            status=one["status"],
            details=cut(one.get("details") or "", _MOST_TEXT),
        )
        for one in _list(document, "tests")[:_MOST_ITEMS]
    )
    asked = (question or summary) if status == "blocked" else ""
    return Result(
        status=status,
        summary=summary,
        files_changed=_kept(document, "files_changed"),
        commits=_kept(document, "commits"),
        tests=tests,
        next_steps=_kept(document, "next_steps"),
        question=asked,
    )


def _kept(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(cut(text, _MOST_TEXT) for text in _list(document, name)[:_MOST_ITEMS])


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def cut(text: str, most: int) -> str:
    """A text without control characters and half characters, of at most so many bytes."""
    plain = _CONTROL.sub("", text.replace("\r\n", "\n")).encode("utf-8", "replace")
    return plain[:most].decode("utf-8", "ignore")


# ---------------------------------------------------------------------------------------- questions and answers

_HEAD = re.compile(r"^## (?P<kind>[QA]):(?P<line>[^\n]*?)(?:\[(?P<id>q_[^\]\s]*)\])?[ \t]*$", re.MULTILINE)
_WHEN = re.compile(r"^\s*(?:\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?|<[^>\n]*>)\s*")
_LIKE_HEAD = re.compile(r"^(?=##\s*[QA]:)", re.MULTILINE)


class _Block(NamedTuple):
    """A question or an answer of the thread, and where it stands."""

    kind: str
    id: str
    text: str
    head_end: int
    end: int


def ask(folder: Path, question: Question) -> None:
    """Write an open question where a person finds it, once. One that its agent wrote there by hand gets our id."""
    thread = _thread(folder)
    blocks = _blocks(thread)
    last = blocks[-1] if blocks else None
    if any(block.kind == "Q" and block.id == question.id for block in blocks):
        return
    if last and last.kind == "Q" and not last.id and last.text.split() == question.text.split():
        _insert(folder, thread, last.head_end, f" [{question.id}]")
    else:
        _append(folder, _block("Q", question.asked_at, question.text, question.id, question.options))


def answered(folder: Path, question_id: str) -> str | None:
    """The answer that somebody wrote under this question; None while there is none."""
    return _under(_blocks(_thread(folder)), question_id) or None


def asked(folder: Path) -> str | None:
    """A question that the agent wrote by hand, without our id, as the last of the thread and unanswered."""
    blocks = _blocks(_thread(folder))
    last = blocks[-1] if blocks else None
    return last.text or None if last and last.kind == "Q" and not last.id else None


def write_answer(folder: Path, question: Question) -> None:
    """Write an answer under its question, unless one stands there already."""
    thread = _thread(folder)
    blocks = _blocks(thread)
    if question.answer is None or _under(blocks, question.id):
        return
    answer = _block("A", question.answered_at or question.asked_at, question.answer)
    asked_here = [block.end for block in blocks if block.kind == "Q" and block.id == question.id]
    if asked_here and asked_here[0] < len(thread):
        _insert(folder, thread, asked_here[0], answer + "\n")
    else:
        _append(folder, answer)


def _thread(folder: Path) -> str:
    return (files.read(folder / QUESTIONS) or b"").decode("utf-8", "replace").replace("\r\n", "\n")


def _insert(folder: Path, thread: str, place: int, text: str) -> None:
    files.write(folder / QUESTIONS, (thread[:place] + text + thread[place:]).encode("utf-8", "replace"))


def _append(folder: Path, block: str) -> None:
    """At the end of the thread, in one write, so that a person may be writing too."""
    with suppress(OSError):
        files.append(folder / QUESTIONS, block.encode("utf-8", "replace"))


def _block(kind: str, at: int, text: str, key: str = "", options: Sequence[str] = ()) -> str:
    """A block whose text can not be taken for a further block."""
    when = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    choices = "".join(f"\n- {option}" for option in options)
    body = cut(text + ("\n" + choices if choices else ""), _MOST_BLOCK)
    return f"\n## {kind}: {when}{f' [{key}]' if key else ''}\n\n{_LIKE_HEAD.sub('> ', body).strip()}\n"


def _blocks(thread: str) -> list[_Block]:
    heads = list(_HEAD.finditer(thread))
    ends = [*(head.start() for head in heads), len(thread)][1:]
    return [_read_block(thread, head, end) for head, end in zip(heads, ends, strict=True)]


def _read_block(thread: str, head: re.Match[str], end: int) -> _Block:
    """A person may write the text beside the heading, with or without a date before it."""
    beside = _WHEN.sub("", head["line"]).strip()
    text = f"{beside}\n{thread[head.end() : end]}".strip()
    return _Block(head["kind"], head["id"] or "", text, head.end(), end)


def _under(blocks: Sequence[_Block], question_id: str) -> str:
    """The text of the first answer between a question and the next."""
    mine = False
    for block in blocks:
        if block.kind == "Q":
            mine = block.id == question_id
        elif mine and block.text:
            return block.text
    return ""
