"""On which line of a TOML file each key stands. `tomllib` does not say."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

Path = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5}     # strings over several lines
    | "(?:\\.|[^"\\])*" | '[^']*' | \#[^\n]*        # strings on one, comments
    | [\[\]{}=,.\n] | [^\s\[\]{}=,."'#]+            # what holds them together, and bare words
    """,
    re.VERBOSE | re.DOTALL,
)
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


def key_lines(text: str) -> dict[Path, int]:
    """The line of every table and key in a valid file."""
    lines: dict[Path, int] = {}
    table: Path = ()
    for number, tokens in _statements(text):
        if tokens[0] == "[":
            table = _path(tokens)
            lines.setdefault(table, number)
        elif "=" in tokens:
            lines.setdefault(table + _path(tokens[: tokens.index("=")]), number)
    return lines


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of a key, or of the innermost table that holds it; 0 when it has none."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0)


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    tokens: list[str] = []
    number, began, depth = 1, 1, 0
    for match in _TOKEN.finditer(text + "\n"):
        piece = match[0]
        if piece == "\n" and depth == 0 and tokens:
            yield began, tokens
            tokens = []
        elif piece != "\n" and not piece.startswith("#"):
            began = began if tokens else number
            tokens.append(piece)
            depth += _DEPTH.get(piece, 0)
        number += piece.count("\n")


def _path(tokens: list[str]) -> Path:
    return tuple(_name(piece) for piece in tokens if piece not in {"[", "]", "."})


def _name(piece: str) -> str:
    return str(tomllib.loads(f"name = {piece}")["name"]) if piece[0] in "\"'" else piece
