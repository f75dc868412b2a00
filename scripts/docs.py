#!/usr/bin/env python3
"""Writes the parts of docs/ that are made from the code; with --check it only says which are not current (exit 1)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from codefleet.cli.tree import COMMANDS, SECTIONS, Tree
from codefleet.config.reference import page as configuration
from codefleet.core.model import Status
from codefleet.core.transitions.table import LETTERS, TABLE, Cell, Event

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- made by scripts/docs.py; do not edit -->"


def transitions(current: str) -> str:
    """how-it-works.md with its table of transitions as the code has it."""
    begin, end = "<!-- transitions -->", "<!-- end of transitions -->"
    before, rest = current.split(begin)
    return f"{before}{begin}\n{_table()}\n{end}{rest.split(end)[1]}"


def _table() -> str:
    states = list(Status)
    letters = {status: letter for letter, status in LETTERS.items()}
    head = f"| a task may … | {' | '.join(letters[state] for state in states)} |"
    rows = [f"| {event.value} | {' | '.join(_cell(event, state, letters) for state in states)} |" for event in Event]
    return "\n".join([head, "|---" * (len(states) + 1) + "|", *rows])


def _cell(event: Event, state: Status, letters: dict[Status, str]) -> str:
    cell: Cell = TABLE[event][state]
    moves = ["=" if to is state else letters[to] for to in Status if to in cell.targets]
    marks = [
        mark for mark, there in (("k", cell.keeps), ("·", cell.refuses), ("\N{EN DASH}", cell.impossible)) if there
    ]
    return " ".join(moves + marks)


def commands(_: str) -> str:
    """Every command with its help."""
    intro = (
        "# Commands\n\n"
        + MADE
        + "\n\nOptions may stand anywhere. `--json` prints one document on stdout; words go to stderr.\n"
    )
    return intro + "".join(_section(section) for section in SECTIONS)


def _section(section: str) -> str:
    names = [name for name, entry in COMMANDS.items() if entry.section == section and not entry.hidden]
    return f"\n## {section}\n" + "".join(_command(name) for name in names)


def _command(name: str) -> str:
    entry = COMMANDS[name]
    if entry.alias:
        return f"\n### {name}\n\nThe same as `codefleet {entry.alias}`.\n"
    found = Tree().get_command(click.Context(Tree()), name)
    assert found is not None
    helps = "\n".join(f"```text\n{text}\n```\n" for text in _helps(found, f"codefleet {name}"))
    return f"\n### {name}\n\n{helps}"


def _helps(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    yield re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _helps(child, f"{path} {name}")


PAGES: dict[str, Callable[[str], str]] = {
    "how-it-works.md": transitions,
    "commands.md": commands,
    "configuration.md": lambda _: configuration().replace("\n\n", f"\n\n{MADE}\n\n", 1),
}


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, make in PAGES.items():
        file = DOCS / name
        current = file.read_text() if file.exists() else ""
        made = make(current)
        if made != current:
            stale.append(name)
            if not check:
                file.write_text(made)
    if stale:
        print(
            f"docs: {'not current, run scripts/docs.py' if check else 'written'}: {', '.join(stale)}", file=sys.stderr
        )
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
