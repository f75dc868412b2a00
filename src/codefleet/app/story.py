"""What the demonstration is about: a small package in Python, and six wishes that scripted agents fulfil."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Step = Mapping[str, Any]

ANSWER = "the first one"
"""What the demonstration says when an agent asks."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A task of the demonstration, with the steps of the agent that does it."""

    title: str
    steps: Sequence[Step]
    after: Sequence[str] = ()
    """Titles of the wishes that must be fulfilled before."""
    priority: int = 3
    scope: Sequence[str] = ()
    labels: Sequence[str] = field(default_factory=tuple)

    @property
    def description(self) -> str:
        """The script, as the scripted agent finds it."""
        lines = "\n".join(json.dumps(step) for step in self.steps)
        return f"The steps that the scripted agent takes:\n\n```script\n{lines}\n```\n"


RUNTIME = """\
max_concurrent = 3
min_free_disk = "64MB"
[agent]
default = "scripted"
"""

_TEST = "import unittest\n\nfrom textkit.{module} import {name}\n\n\nclass Test(unittest.TestCase):\n{body}"


def files() -> dict[str, str]:
    """The repository before anybody worked on it."""
    gate = json.dumps([sys.executable, "-m", "unittest", "discover", "-q", "-s", "tests", "-t", "."])
    return {
        "README.md": "# textkit\n\nLooks at texts.\n",
        ".gitignore": "__pycache__/\n",
        "textkit/__init__.py": '"""Looks at texts."""\n',
        "tests/__init__.py": "",
        "tests/test_package.py": _test("__init__", "__doc__", [("is_described", "self.assertTrue(__doc__)")]),
        "codefleet.toml": f'[project]\nname = "textkit"\n\n[gates]\ntest = {gate}\n\n[landing]\ntarget = "main"\n',
    }


def _test(module: str, name: str, cases: Sequence[tuple[str, str]]) -> str:
    body = "\n".join(f"    def test_{case}(self) -> None:\n        {check}\n" for case, check in cases)
    return _TEST.format(module=module, name=name, body=body).replace("textkit.__init__", "textkit")


def _work(
    module: str, code: str, name: str, cases: Sequence[tuple[str, str]], pace: float, *, first: Sequence[Step] = ()
) -> list[Step]:
    """An agent reads, thinks, writes code and tests, tries them and says that it is done."""
    return [
        {"say": f"I look at the package and write textkit/{module}.py."},
        {"sleep": 1.2 * pace},
        *first,
        {"write": f"textkit/{module}.py", "text": code},
        {"sleep": 0.8 * pace},
        {"write": f"tests/test_{module}.py", "text": _test(module, name, cases)},
        {"usage": {"input": 2400, "output": 310, "cached": 1800, "cost_usd": 0.0}},
        {"sleep": 0.8 * pace},
        {"commit": f"Add {name}"},
        {"result": {"status": "completed", "summary": f"textkit.{module}.{name} is there, with its test."}},
    ]


def wishes(pace: float) -> list[Wish]:
    """The backlog; `pace` stretches the time that agents think."""
    return [_words(pace), _lines(pace), _longest(pace), _together(pace), _description(pace), _licence(pace)]


def _words(pace: float) -> Wish:
    code = '"""Words."""\n\n\ndef words(text: str) -> int:\n    return len(text.split())\n'
    cases = [("words", 'self.assertEqual(words("a b\\nc"), 3)')]
    return Wish(
        "Count words",
        _work("words", code, "words", cases, pace),
        priority=5,
        scope=("textkit/words.py", "tests/test_words.py"),
        labels=("feature",),
    )


def _lines(pace: float) -> Wish:
    """Its agent makes a mistake; the gate sends it back."""
    wrong = '"""Lines."""\n\n\ndef lines(text: str) -> int:\n    return text.count("\\n") + 1\n'
    right = '"""Lines."""\n\n\ndef lines(text: str) -> int:\n    return len(text.splitlines())\n'
    repair: list[Step] = [
        {"say": "The gate is right: a text that ends with a newline has no further line."},
        {"sleep": 0.8 * pace},
        {"write": "textkit/lines.py", "text": right},
        {"commit": "Count no line behind the last newline"},
        {"result": {"status": "completed", "summary": "textkit.lines.lines counts right now."}},
    ]
    cases = [("lines", 'self.assertEqual(lines("a\\nb\\n"), 2)')]
    return Wish(
        "Count lines",
        [*_work("lines", wrong, "lines", cases, pace), *({"on": "round 2", **step} for step in repair)],
        priority=4,
        scope=("textkit/lines.py", "tests/test_lines.py"),
        labels=("feature",),
    )


def _longest(pace: float) -> Wish:
    """Its agent asks before it writes."""
    code = (
        '"""Lines."""\n\n\ndef longest(text: str) -> str:\n'
        '    """The longest line; of several the first."""\n    return max(text.splitlines(), key=len, default="")\n'
    )
    asked: Step = {"ask": "When two lines are equally long, which one counts?", "options": [ANSWER, "the last one"]}
    cases = [("longest", 'self.assertEqual(longest("a\\nbb\\ncc"), "bb")')]
    return Wish(
        "Find the longest line",
        _work("longest", code, "longest", cases, pace, first=[asked]),
        priority=4,
        scope=("textkit/longest.py", "tests/test_longest.py"),
        labels=("feature",),
    )


def _description(pace: float) -> Wish:
    steps: list[Step] = [
        {"say": "All parts are there; I write down how they are used."},
        {"sleep": 1.5 * pace},
        {"append": "README.md", "text": "\n    >>> from textkit.report import report\n    >>> report('a b')\n"},
        {"result": {"status": "completed", "summary": "The README shows how the report is used."}},
    ]
    return Wish("Describe the package", steps, after=("Report on a text",), labels=("docs",))


def _licence(pace: float) -> Wish:
    steps: list[Step] = [
        {"sleep": 1.0 * pace},
        {"write": "LICENSE", "text": "Everybody may do everything with this.\n"},
        {"result": {"status": "completed", "summary": "There is a licence."}},
    ]
    return Wish("Say who may use it", steps, priority=2, labels=("docs",))


def _together(pace: float) -> Wish:
    """It builds on three others, so it can only work on a base that holds all of them."""
    code = (
        '"""Reports."""\n\nfrom textkit.lines import lines\nfrom textkit.longest import longest\n'
        "from textkit.words import words\n\n\ndef report(text: str) -> str:\n"
        '    return f"{words(text)} words, {lines(text)} lines, the longest is {longest(text)!r}"\n'
    )
    check = 'self.assertEqual(report("a b\\n"), "2 words, 1 lines, the longest is \'a b\'")'
    return Wish(
        "Report on a text",
        _work("report", code, "report", [("report", check)], pace),
        after=("Count words", "Count lines", "Find the longest line"),
        priority=5,
        labels=("feature",),
    )
