"""The documents keep to their size, lead nowhere wrong, and name no machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize(("page", "most"), [("README.md", 150), ("AGENTS.md", 100)])
def test_what_is_read_first_is_short(page: str, most: int) -> None:
    assert len((TOP / page).read_text().splitlines()) <= most


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_a_link_between_our_documents_leads_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_a_newcomer_finds_where_a_task_changes_from_the_first_page() -> None:
    assert "(CONTRIBUTING.md)" in (TOP / "README.md").read_text()
    first = LINK.findall((TOP / "CONTRIBUTING.md").read_text())[0]
    assert first == "src/codefleet/ports.py"
    assert "core/transitions/table.py" in (TOP / "CONTRIBUTING.md").read_text()


def test_documents_that_are_made_from_the_code_are_current() -> None:
    made = subprocess.run(
        [sys.executable, TOP / "scripts/docs.py", "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert made.returncode == 0, made.stderr


def test_the_licence_is_there_in_full() -> None:
    text = (TOP / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
