"""Lines and values, tried with much that nobody would think of."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefleet.config import values
from codefleet.config.document import Place, read
from codefleet.config.keys import KEYS, Key
from codefleet.config.lines import key_lines, line_of
from codefleet.config.values import toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.booleans() | st.integers(-(2**60), 2**60) | texts | st.floats(allow_nan=False, allow_infinity=False)
data = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
tables = st.dictionaries(texts, data, max_size=5)


@given(tables)
def test_what_is_written_as_toml_reads_back(table: dict[str, Any]) -> None:
    text = "".join(f"{values.bare(name)} = {toml(value)}\n" for name, value in table.items())

    assert tomllib.loads(text) == table


@given(st.lists(st.tuples(texts, data, st.integers(0, 3), st.booleans()), max_size=6, unique_by=lambda entry: entry[0]))
def test_every_key_has_the_line_that_it_stands_on(entries: list[tuple[str, Any, int, bool]]) -> None:
    text, expected = "", {}
    for name, value, blank, noted in entries:
        text += "\n" * blank + ("# noted = [ {\n" if noted else "")
        expected[name,] = text.count("\n") + 1
        text += f"{values.bare(name)} = {toml(value)}{'  # x = 1' if noted else ''}\n"

    assert key_lines(text) == expected


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a = '''\nb = 1\n'''\nc = 2", ("c",), 4),
        ('a = """\n[b]\n\\"""\n"""\nc = 2', ("c",), 5),
        ('a = """x"""""\nb = 1', ("b",), 2),
        ("a = [\n  1, # ]\n  2,\n]\nb = 1", ("b",), 5),
        ("[a.'b.c']\nd = 1", ("a", "b.c", "d"), 2),
        ('["a"]\n"=" = 1', ("a", "="), 2),
        ("[a]\nb.c = 1", ("a", "b", "c"), 2),
        ("[a]\nb = { c = 1 }", ("a", "b", "c"), 2),
        ("[[a]]\nb = 1\n[[a]]\nb = 2", ("a", "b"), 2),
        ("a = 1979-05-27 07:32:00Z\nb = 1", ("b",), 2),
        ("a = -1.5e+3\nb = inf", ("b",), 2),
        ("\n\n[ a . b ]\n c = 1", ("a", "b", "c"), 4),
        ("a = ''\nb = \"\"\nc = 1", ("c",), 3),
    ],
)
def test_lines_are_found_whatever_toml_allows(text: str, path: tuple[str, ...], line: int) -> None:
    tomllib.loads(text)

    assert line_of(key_lines(text), path) == line


def test_a_file_with_line_ends_of_another_system_has_the_same_lines() -> None:
    (problem,) = read(b"[limits]\r\n\r\nattempts = 0\r\n", "codefleet.toml", Place.PROJECT).problems

    assert problem.text.startswith("codefleet.toml:3: ")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _strings(inner)


def _checked(key: Key, value: object) -> tuple[object, str]:
    """The value as it is held, or why it is refused."""
    try:
        return key.kind.check(value), ""
    except ValueError as error:
        return None, str(error)


@given(st.sampled_from(KEYS), data)
def test_a_kind_takes_a_value_or_says_what_it_wants(key: Key, value: object) -> None:
    held, refused = _checked(key, value)

    assert refused or key.kind.check(held) == held
    assert "wanted" in (refused or "wanted")
    assert all("\0" not in text for text in _strings(held))


@given(st.sampled_from(KEYS), texts)
def test_any_text_of_a_variable_is_taken_or_refused(key: Key, text: str) -> None:
    held, refused = _checked(key, key.kind.parse(text))

    assert refused or key.kind.check(held) == held
    assert "wanted" in (refused or "wanted")


@given(
    st.dictionaries(st.sampled_from(["limits", "agents", "gates", "project", "setup", "x"]) | texts, data, max_size=4)
)
def test_any_valid_file_is_read_or_its_problems_are_said(table: dict[str, Any]) -> None:
    text = "".join(f"{values.bare(name)} = {toml(value)}\n" for name, value in table.items())
    document = read(text.encode(), "codefleet.toml", Place.PROJECT)

    assert all(problem.text.startswith("codefleet.toml:") for problem in document.problems)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_an_exception(content: bytes) -> None:
    read(content, "codefleet.toml", Place.PROJECT)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("1B", 1), ("512MB", 512 << 20), ("512 mb", 512 << 20), ("1KB", 1024), ("3TB", 3 << 40), ("77", 77)],
)
def test_sizes_are_counted(text: str, count: int) -> None:
    assert values.size().check(text) == count


@given(st.integers(0, 1 << 50))
def test_a_size_is_shown_so_that_it_reads_back(count: int) -> None:
    assert values.size().check(values.size_text(count)) == count


@pytest.mark.parametrize("text", ["MB", "-1MB", "1.5GB", "1XB", "", "٣MB", "1" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        values.size().check(text)


@pytest.mark.parametrize("name", ["{agent}/{task}/{id}", "ai/{user}-{date}", "x", "ümlaut/{id}", "a.b/{id}"])
def test_names_of_branches_that_git_takes(name: str) -> None:
    assert values.branch().check(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a..b", "/a", "a/", "a//b", "a~1", "a^", "a:b", "-a", "{who}", "{", "a.lock", "a/.b", "a@{b", "a."],
)
def test_names_of_branches_that_git_would_refuse(name: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        values.branch().check(name)


def test_the_persons_own_folder_is_put_in_at_the_beginning_only() -> None:
    shown = [
        values.expanded(path, "/people/ada") for path in ("~", "~/a", "$HOME/a", "${HOME}/a", "~b/a", "a/~", "/~/a")
    ]

    assert shown == ["/people/ada", "/people/ada/a", "/people/ada/a", "/people/ada/a", "~b/a", "a/~", "/~/a"]


@pytest.mark.parametrize("path", ["$TMPDIR/a", "a/$HOME", "$HOMEX/a", "~/$X"])
def test_other_variables_in_a_path_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no other variable"):
        values.path().check(path)
