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
from typing import TYPE_CHECKING, Any

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
TESTED = ("passed", "failed", "not_run")
MOST_SUMMARY = 8 << 10
_MOST_TEXT, _MOST_ITEMS = 2 << 10, 500


# ------------------------------------------------------------------------------------------------------- folders


def prepare(home: Home, task: str, number: int, *, shared: bool) -> Path:
    """The artifacts folder for a run, with its stubs and without an earlier result. Not `shared`, because an older
    run's tree may still write: a copy of its own. For a run that has been prepared it only says where."""
    done = home.run(task, number) / ".prepared"
    if done.exists():
        return place(home, task, number)
    folder = home.artifacts(task) if shared else home.artifacts(task, number)
    if shared:
        _straighten(home, task)
    elif not folder.exists():
        _copy(_newest(home, task), folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in STUBS.items():
        _stub(folder / name, text)
    _put_away(folder, home.run(task, number - 1))
    done.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    done.touch()
    return folder


def place(home: Home, task: str, number: int) -> Path:
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
    for name in ("files_changed", "commits", "next_steps"):
        if not _texts(document.get(name, [])):
            return f"{name} must be a list of texts"
    if not isinstance(document.get("question") or "", str):
        return "question must be a text"
    tests = document.get("tests", [])
    return "" if isinstance(tests, list) and all(map(_is_test, tests)) else "tests must be a list of {command, status}"


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


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
        for one in document.get("tests", [])[:_MOST_ITEMS]
    )
    asked = (question or summary) if status == "blocked" else ""
    return Result(
        status=status,
        summary=summary,
        files_changed=_kept(document.get("files_changed", [])),
        commits=_kept(document.get("commits", [])),
        tests=tests,
        next_steps=_kept(document.get("next_steps", [])),
        question=asked,
    )


def _kept(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(cut(text, _MOST_TEXT) for text in texts[:_MOST_ITEMS])


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def cut(text: str, most: int) -> str:
    """A text without control characters and half characters, of at most so many bytes."""
    plain = _CONTROL.sub("", text.replace("\r\n", "\n")).encode("utf-8", "replace")
    return plain[:most].decode("utf-8", "ignore")


# ---------------------------------------------------------------------------------------- questions and answers

_HEAD = re.compile(r"^## (?P<kind>[QA]):[ \t]*(?P<when>[^\[\n]*?)[ \t]*(?:\[(?P<id>[^\]\n]*)\])?[ \t]*$", re.MULTILINE)
_FAKE = re.compile(r"^(?=## ?[QA]:)", re.MULTILINE)


def ask(folder: Path, question: Question) -> None:
    """Write an open question where a person finds it, once."""
    text = _thread(folder)
    if not any(kind == "Q" and key == question.id for kind, key, _, _ in _blocks(text)):
        _append(folder, _block("Q", question.asked_at, question.text, question.id, question.options))


def answered(folder: Path, question_id: str) -> str | None:
    """The answer that somebody wrote under this question; None while there is none."""
    found = _under(_blocks(_thread(folder)), question_id)
    return found or None


def asked(folder: Path) -> str | None:
    """A question that the agent wrote by hand, without our id, as the last of the thread and unanswered."""
    blocks = _blocks(_thread(folder))
    kind, key, body, _ = blocks[-1] if blocks else ("", "", "", 0)
    return body if kind == "Q" and not key and body else None


def write_answer(folder: Path, question: Question) -> None:
    """Write an answer under its question, unless one stands there already."""
    text = _thread(folder)
    blocks = _blocks(text)
    if question.answer is None or _under(blocks, question.id):
        return
    answer = _block("A", question.answered_at or question.asked_at, question.answer)
    place = next((end for kind, key, _, end in blocks if kind == "Q" and key == question.id), None)
    if place is None or not text[place:].strip():
        _append(folder, answer)
    else:
        files.write(folder / QUESTIONS, (text[:place].rstrip("\n") + "\n" + answer + "\n" + text[place:]).encode())


def _thread(folder: Path) -> str:
    return (files.read(folder / QUESTIONS) or b"").decode("utf-8", "replace").replace("\r\n", "\n")


def _append(folder: Path, block: str) -> None:
    """At the end of the thread, in one write; never through a link that stands in its place."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(folder / QUESTIONS, flags, 0o600)
        try:
            os.write(descriptor, block.encode("utf-8", "replace"))
        finally:
            os.close(descriptor)


def _block(kind: str, at: int, text: str, key: str = "", options: Sequence[str] = ()) -> str:
    when = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    choices = "".join(f"\n- {option}" for option in options)
    body = _FAKE.sub("\\\\", cut(text + ("\n" + choices if choices else ""), files.MOST >> 4))
    return f"\n## {kind}: {when}{f' [{key}]' if key else ''}\n\n{body.strip()}\n"


def _blocks(text: str) -> list[tuple[str, str, str, int]]:
    """The thread as (kind, id, text, where it ends)."""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    return [
        (head["kind"], head["id"] or "", text[head.end() : end].strip(), end)
        for head, end in zip(heads, ends, strict=True)
    ]


def _under(blocks: Sequence[tuple[str, str, str, int]], question_id: str) -> str:
    """The text of the first answer between a question and the next."""
    mine = False
    for kind, key, body, _ in blocks:
        if kind == "Q":
            mine = key == question_id
        elif mine and body:
            return body
    return ""
