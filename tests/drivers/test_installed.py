"""Which driver an agent type gets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from codefleet.core.errors import ConfigError
from codefleet.core.settings import BUILT_IN, AgentType
from codefleet.drivers import Installed


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_built_in_types_have_their_drivers(name: str) -> None:
    assert Installed().driver(name, BUILT_IN[name]).name == BUILT_IN[name].driver


def test_a_class_of_others_is_named_by_its_place() -> None:
    agent = AgentType(driver="codefleet.drivers.scripted:Scripted")
    assert Installed().driver("mine", agent).name == "scripted"


@pytest.mark.parametrize(
    "driver",
    [
        "",
        "cluade",
        "no.such.module:Class",
        "codefleet.drivers.scripted:Missing",
        "codefleet.core.settings:AgentType",
        ":x",
        "..a:b",
        "x:",
    ],
)
def test_a_driver_that_is_not_there_is_a_config_error_with_a_hint(driver: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Installed().driver("mine", AgentType(driver=driver))
    assert "mine" in caught.value.message
    assert caught.value.hint


def test_finding_drivers_loads_none_of_them() -> None:
    loaded = "import sys, codefleet.drivers; print([m for m in sys.modules if m.startswith('codefleet.')])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['codefleet.drivers']"
