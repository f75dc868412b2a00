"""What a person wants done, before it is a task: cleaned of what means nothing, refused where it means harm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from codefleet.core.errors import InvalidInput
from codefleet.core.model import Complexity, Expects
from codefleet.core.transitions.people import Edit

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""What the id of a task is made of: nothing that is mistaken for something else."""
ID_LENGTH = 8

MOST_TITLE = 300
MOST_TEXT = 1 << 20
MOST_WORD = 200
MOST_LIST = 200

Word = TypeVar("Word", Complexity, Expects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task that somebody asks for."""

    title: str
    description: str = ""
    priority: int = 3
    labels: tuple[str, ...] = ()
    file_scope: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    complexity: str = Complexity.MEDIUM.value
    expects: str = Expects.CHANGE.value
    agent: str = ""
    model: str = ""
    cwd: str = ""
    first: bool = False
    """Before everything that waits its turn."""


def checked(draft: Draft) -> Draft:
    """The draft in its plain form; `InvalidInput` says what can not be."""
    complexity(draft.complexity)
    expects(draft.expects)
    return replace(
        draft,
        title=title(draft.title),
        description=description(draft.description),
        priority=priority(draft.priority),
        labels=labels(draft.labels),
        file_scope=globs(draft.file_scope),
        depends_on=words(draft.depends_on, "dependency"),
        model=word(draft.model, "model"),
    )


def checked_edit(edit: Edit) -> Edit:
    """The same rules for the fields that an edit gives."""
    rules: Mapping[str, Callable[..., object]] = {
        "title": title,
        "description": description,
        "priority": priority,
        "labels": labels,
        "file_scope": globs,
        "model": lambda value: word(value, "model"),
    }
    given = {name: rule(getattr(edit, name)) for name, rule in rules.items() if getattr(edit, name) is not None}
    return replace(edit, **given)  # type: ignore[arg-type]  # each rule keeps the type of its field


def title(text: str) -> str:
    plain = _text(text, "title").strip()
    if not plain:
        raise InvalidInput("the title is empty", hint="say in a few words what is to be done")
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in plain):
        raise InvalidInput("the title holds a control character", hint="write one line; more goes into the description")
    if len(plain) > MOST_TITLE:
        raise InvalidInput(
            f"the title has {len(plain)} characters, {MOST_TITLE} are the most", hint="put the rest into -d"
        )
    return plain


def description(text: str) -> str:
    plain = _text(text, "description")
    size = len(plain.encode())
    if size > MOST_TEXT:
        raise InvalidInput(
            f"the description has {size} bytes, {MOST_TEXT} are the most",
            hint="put it into a file of the repository and name the file",
        )
    return plain


def comment(text: str, what: str) -> str:
    """Words that a person must give: an answer, a review."""
    if not text.strip():
        raise InvalidInput(f"the {what} is empty", hint="say it in words")
    return description(text)


def priority(value: int) -> int:
    if not 1 <= value <= 5:
        raise InvalidInput(f"priority {value} is out of range", hint="1 is lowest, 5 most urgent")
    return value


def complexity(text: str) -> Complexity:
    return _one_of(Complexity, text, "complexity")


def expects(text: str) -> Expects:
    return _one_of(Expects, text, "expected outcome")


def _one_of(kind: type[Word], text: str, what: str) -> Word:
    try:
        return kind(text)
    except ValueError:
        names = " ".join(kind)
        raise InvalidInput(f"{text!r} is no {what}", hint=f"one of: {names}") from None


def labels(values: Iterable[str]) -> tuple[str, ...]:
    return words(values, "label")


def words(values: Iterable[str], what: str) -> tuple[str, ...]:
    """Each once, in order, commas split."""
    found = dict.fromkeys(word(part, what) for value in values for part in value.split(",") if part.strip())
    if len(found) > MOST_LIST:
        raise InvalidInput(f"{len(found)} entries of kind {what}, {MOST_LIST} are the most")
    return tuple(found)


def word(text: str, what: str) -> str:
    plain = _text(text, what).strip()
    if len(plain) > MOST_WORD or any(ord(char) < 0x20 for char in plain):
        raise InvalidInput(f"{plain[:40]!r} is no {what}", hint=f"one line of at most {MOST_WORD} characters")
    return plain


def globs(values: Iterable[str]) -> tuple[str, ...]:
    """Patterns of files inside the project; a comma inside braces does not part them."""
    parts = (part.strip() for value in values for part in _COMMA.split(_text(value, "file scope")))
    return tuple(dict.fromkeys(_glob(part) for part in parts if part))


_COMMA = re.compile(r",(?![^{]*\})")


def _glob(text: str) -> str:
    plain = text.removeprefix("./")
    if plain.startswith(("/", "~")) or ".." in plain.split("/"):
        raise InvalidInput(f"the file scope {text!r} leaves the project", hint='write it from its top, as in "src/**"')
    return word(plain, "file scope")


def _text(text: str, what: str) -> str:
    if "\0" in text:
        raise InvalidInput(f"the {what} holds a NUL character", hint="leave it out")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"the {what} is not valid UTF-8", hint="save or type it as UTF-8") from None
    return text


def alike(one: str, other: str) -> bool:
    """Do two titles share most of their words?"""
    first, second = (set(re.findall(r"\w+", text.casefold())) for text in (one, other))
    return bool(first | second) and len(first & second) / len(first | second) >= 0.7
