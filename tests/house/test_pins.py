"""What is installed is pinned, with hashes, and the pins follow from what the project declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

TOP = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((TOP / "pyproject.toml").read_text())
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)


def pins(kind: str) -> dict[str, str]:
    return dict(PIN.findall((TOP / f"requirements/{kind}.txt").read_text()))


def declared(kind: str) -> list[Requirement]:
    groups = PROJECT["dependency-groups"]
    own = [line for line in groups[kind] if isinstance(line, str)]
    return [Requirement(line) for line in PROJECT["project"]["dependencies"] + groups["build"] + own]


@pytest.mark.parametrize(("kind", "group"), [("base", "build"), ("dev", "dev")])
def test_every_declared_dependency_is_pinned_within_its_bounds(kind: str, group: str) -> None:
    pinned = pins(kind)
    wrong = {one.name: pinned.get(one.name) for one in declared(group) if pinned.get(one.name, "") not in one.specifier}
    assert not wrong


def test_both_sets_of_pins_are_of_the_same_versions() -> None:
    assert pins("base").items() <= pins("dev").items()


@pytest.mark.parametrize("kind", ["base", "dev"])
def test_pins_carry_hashes_and_name_no_host(kind: str) -> None:
    text = (TOP / f"requirements/{kind}.txt").read_text()
    assert "://" not in text
    assert "--hash=sha256:" in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)


def test_every_dependency_has_a_floor_and_a_cap() -> None:
    loose = [
        line
        for line in PROJECT["project"]["dependencies"]
        if {spec.operator for spec in Requirement(line).specifier} != {">=", "<"}
    ]
    assert not loose
