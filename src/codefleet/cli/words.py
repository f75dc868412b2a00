"""How things look on a terminal: columns, times, colours. What others wrote can not steer the terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from codefleet.cli.frame import columns

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NAMES = ("codefleet", "fleet", "flt", "codefleet-commander")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
COLOURS = {
    "blocked": "dim",
    "pending": "dim",
    "assigned": "cyan",
    "in_progress": "cyan",
    "waiting": "yellow",
    "verifying": "blue",
    "verified": "yellow",
    "landing": "blue",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "idle": "dim",
    "working": "cyan",
    "paused": "yellow",
    "offline": "dim",
    "error": "red",
}


def clean(text: str) -> str:
    """The text without anything that steers a terminal; lines and tabs stay."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def coloured() -> bool:
    """May we colour what goes to stdout?"""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style in _STYLES and coloured() else text


def state(word: str) -> str:
    """A status in its colour."""
    return paint(word, COLOURS.get(word, ""))


def width(text: str) -> int:
    """How many columns a terminal gives it."""
    plain = re.sub(r"\x1b\[\d+m", "", text)
    return sum(_columns(char) for char in plain) if not plain.isascii() else len(plain)


def _columns(char: str) -> int:
    import unicodedata

    if unicodedata.combining(char) or char in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, most: int) -> str:
    """The beginning of a text, marked when something is missing."""
    if width(text) <= most:
        return text
    kept, used = [], 1
    for char in text:
        used += _columns(char)
        if used > most:
            break
        kept.append(char)
    return "".join(kept) + "…"


def wrapped(text: str) -> str:
    """A paragraph in lines that are not too wide."""
    import textwrap

    return textwrap.fill(text, min(columns(), 110), break_long_words=False, break_on_hyphens=False) + "\n"


def program() -> str:
    """How a shell finds this program again: by its name, or where it lies."""
    import shlex
    import shutil

    name = os.path.basename(sys.argv[0])  # noqa: PTH119 - as it was typed
    if name in NAMES:
        return name if shutil.which(name) else shlex.quote(os.path.abspath(sys.argv[0]))  # noqa: PTH100 - links stay
    return "codefleet" if shutil.which("codefleet") else f"{shlex.quote(sys.executable)} -m codefleet"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, wide: str = "") -> str:
    """Aligned columns; on a terminal the column called `wide`, and then the last one, give way so that a row stays on a
    line."""
    cells = [[one_line_of(cell) for cell in row] for row in rows]
    widths = [
        max(width(name), *(width(row[n]) for row in cells)) if cells else width(name) for n, name in enumerate(head)
    ]
    if wide and sys.stdout.isatty():
        for at in dict.fromkeys([list(head).index(wide), len(head) - 1]):
            over = sum(widths) + 2 * (len(head) - 1) - columns()
            widths[at] = max(min(12, widths[at]), widths[at] - max(0, over))
            cells = [[cut(cell, widths[at]) if n == at else cell for n, cell in enumerate(row)] for row in cells]
    lines = [_aligned([paint(name, "bold") for name in head], widths)]
    return "\n".join(lines + [_aligned(row, widths) for row in cells])


def one_line_of(cell: str) -> str:
    """A cell on one line; its colours stay."""
    return cell.replace("\n", " ").replace("\t", " ")


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True)]
    return "  ".join(padded).rstrip()


def moment(stamp: str | None) -> str:
    """A moment of a document in local time."""
    if not stamp:
        return "-"
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock(stamp: str | None) -> str:
    return datetime.fromisoformat(stamp).astimezone().strftime("%H:%M:%S") if stamp else "-"


def since(stamp: str | None) -> str:
    """How long ago a moment of a document is."""
    if not stamp:
        return "-"
    return duration((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())


def duration(seconds: float) -> str:
    """`42s`, `3m07s`, `2h10m`, `3d4h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
