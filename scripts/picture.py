#!/usr/bin/env python3
"""Makes docs/demo.svg, the picture in the README, from a real run of `codefleet demo` in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rich.color import ColorSystem
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs" / "demo.svg"
COLUMNS, ROWS = 116, 24
EVERY = 0.7
"""Seconds between two frames."""
STAY = 5.0
"""Seconds that the last frame stays."""
CELL, LINE, EDGE = 8.4, 18, 16
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r\n)|(\r)")
Frame = tuple[float, Sequence[Text]]


class Screen:
    """As much of a terminal as the demo uses: lines, moving up, erasing a line; styles stay in the lines."""

    def __init__(self) -> None:
        self.lines = ["\x1b[1m$\x1b[0m codefleet demo", ""]
        self.row = 1

    def feed(self, data: str) -> None:
        end = 0
        for match in CONTROL.finditer(data):
            self._put(data[end : match.start()])
            end = match.end()
            self._control(match)
        self._put(data[end:])

    def _control(self, match: re.Match[str]) -> None:
        number, letter, newline, _ = match.groups()
        if newline:
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif letter == "A":
            self.row -= int(number or 1)
        elif letter == "K":
            self.lines[self.row] = ""
        elif letter == "m":
            self._put(match[0])

    def _put(self, text: str) -> None:
        self.lines[self.row] += text

    def frame(self) -> Sequence[Text]:
        from rich.console import Console

        console = Console(width=COLUMNS)
        shown = [part for line in self.lines for part in Text.from_ansi(line).wrap(console, COLUMNS) or [Text()]]
        while shown and not shown[-1].plain.strip():
            shown.pop()
        return shown[-ROWS:]


def played() -> Iterator[Frame]:
    """The demo's frames with the seconds since it began."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execv(sys.executable, [sys.executable, "-m", "codefleet", "demo", "--rm"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, begun, shown = Screen(), time.monotonic(), -EVERY
    for data in _read(terminal):
        screen.feed(re.sub(r"/\S*/codefleet-demo-[^/\s]+", "/tmp/…", data))
        now = time.monotonic() - begun
        if now - shown >= EVERY:
            shown = now
            yield now, screen.frame()
    yield time.monotonic() - begun, screen.frame()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit("picture: the demo failed")


def _read(terminal: int) -> Iterator[str]:
    """What is printed, in pieces that end where it paused."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        yield decoder.decode(data)


# ------------------------------------------------------------------------------------------------------------ drawing


def drawn(frames: Sequence[Frame]) -> str:
    """All frames in one picture that plays them for ever; where nothing moves, the last one stands."""
    width, height = round(COLUMNS * CELL + 2 * EDGE), ROWS * LINE + 2 * EDGE
    total = frames[-1][0] + STAY
    times = [0.0, *(at for at, _ in frames[1:]), total]
    rules, groups = [], []
    for number, (_, lines) in enumerate(frames):
        begin, end = (100 * at / total for at in times[number : number + 2])
        first = "visible" if number == 0 else "hidden"
        rules.append(f"@keyframes f{number}{{0%{{visibility:{first}}}{begin:.2f}%{{visibility:visible}}")
        rules.append(f"{end:.2f}%{{visibility:hidden}}}}" if number < len(frames) - 1 else "}")
        rules.append(f".f{number}{{animation:f{number} {total:.1f}s step-end infinite}}\n")
        hidden = "" if number == len(frames) - 1 else ' visibility="hidden"'
        groups.append(f'<g class="f{number}"{hidden}>\n{_lines(lines)}</g>\n')
    theme = DIMMED_MONOKAI
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" xml:space="preserve" role="img" '
        'aria-label="codefleet demo: three agents work six tasks off, each is proven">\n'
        f"<style>text{{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;"
        f"fill:{theme.foreground_color.hex}}}\n{''.join(rules)}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="{theme.background_color.hex}"/>\n{"".join(groups)}</svg>\n'
    )


def _lines(lines: Sequence[Text]) -> str:
    return "".join(
        f"{_line(line, EDGE + LINE * (row + 1) - 5)}\n" for row, line in enumerate(lines) if line.plain.strip()
    )


def _line(line: Text, y: int) -> str:
    """Each styled piece stands in its own column, whatever the width of a letter."""
    pieces, at = [], 0
    line = line.copy()
    line.rstrip()
    for text, style in _pieces(line):
        if text.strip():
            x = EDGE + CELL * at
            pieces.append(
                f'<tspan x="{x:.1f}"{_look(style)} textLength="{CELL * len(text):.1f}">{escape(text)}</tspan>'
            )
        at += len(text)
    return f'<text y="{y}">{"".join(pieces)}</text>'


def _pieces(line: Text) -> Iterator[tuple[str, Style]]:
    from rich.console import Console

    for segment in line.render(Console(width=COLUMNS), end=""):
        if segment.text:
            yield segment.text, segment.style or Style()


def _look(style: Style) -> str:
    look = ' font-weight="bold"' if style.bold else ""
    if style.color:
        look += f' fill="{style.color.downgrade(ColorSystem.STANDARD).get_truecolor(DIMMED_MONOKAI).hex}"'
    return look + (' opacity="0.6"' if style.dim else "")


if __name__ == "__main__":
    TARGET.write_text(drawn(list(played())))
