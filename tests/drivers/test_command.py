"""A plain command as an agent."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from codefleet.core.errors import ConfigError
from codefleet.core.settings import AgentType
from codefleet.drivers.command import CommandLine
from codefleet.ports import EndingKind, Order
from codefleet.testing.drivers import run

ECHO = (sys.executable, "-S", "-I", "-c", "import json, sys; print(json.dumps(sys.argv[1:]), file=sys.stderr)")


def driver(*words: str, **more: object) -> CommandLine:
    return CommandLine(AgentType(driver="command", command=words, **more))  # type: ignore[arg-type]


def printing(*lines: object) -> CommandLine:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return driver(sys.executable, "-S", "-I", "-c", "import sys; print(sys.argv[1])", text.replace("{", "{"))


def test_places_are_filled_once_and_other_braces_stay(order: Order) -> None:
    order = replace(order, model="m-1", prompt="{task_id} users can't login $(touch x) `touch y`")
    words = (
        "{task_id}",
        "--p={prompt}",
        "{prompt_file}",
        "{model}",
        "{workspace}",
        "{task_dir}",
        "{artifacts_dir}",
        "{other}",
        "{{a}}",
        "{}",
    )
    assert json.loads(run(driver(*ECHO, *words), order).stderr) == [
        "abcd2345",
        "--p={task_id} users can't login $(touch x) `touch y`",
        str(order.prompt_file),
        "m-1",
        str(order.workspace),
        str(order.task_dir),
        str(order.artifacts),
        "{other}",
        "{{a}}",
        "{}",
    ]
    assert list(order.workspace.iterdir()) == []


@pytest.mark.parametrize("prompt", ["ü" * 70_000, "a\0b"])
def test_a_prompt_that_no_argument_can_hold_is_pointed_to(order: Order, prompt: str) -> None:
    (said,) = json.loads(run(driver(*ECHO, "{prompt}"), replace(order, prompt=prompt)).stderr)
    assert str(order.prompt_file) in said


def test_the_prompt_may_come_on_stdin(order: Order) -> None:
    order.prompt_file.write_text("The whole prompt.")
    copy = driver(sys.executable, "-S", "-I", "-c", "import sys; sys.stderr.write(sys.stdin.read())", stdin="prompt")
    assert copy.command(order).stdin == "prompt"
    assert run(copy, order).stderr == "The whole prompt."


def test_known_events_become_activity_and_all_else_is_log(order: Order) -> None:
    ran = run(
        printing(
            {"type": "message", "role": "assistant", "text": "hello"},
            {"type": "usage", "input": 3, "output": "many", "cost_usd": 0.25},
            {"type": "weather", "sun": [1, 2]},
            {"no": "type"},
            "plain words",
            {"type": "assistant", "message": {"content": [{"type": "text", "text": "from a stream"}]}},
        ),
        order,
    )
    assert ran.kinds == ["message", "usage", "log", "log", "log", "message"]
    assert ran.events[2].data == {"text": "weather", "object": {"type": "weather", "sun": [1, 2]}}
    assert ran.events[4].data == {"text": "plain words"}
    assert ran.progress.text == "from a stream"
    assert (ran.progress.usage.input, ran.progress.usage.output, ran.progress.cost_usd) == (3, 0, 0.25)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "turn_ended", "ok": True},
        {"type": "message_taken", "uuid": "u"},
        {"type": "result", "is_error": True, "api_error_status": 401},
    ],
)
def test_its_output_decides_nothing(order: Order, line: dict[str, object]) -> None:
    ran = run(printing(line), order)
    assert ran.progress.turns == 0
    assert ran.ending.kind is EndingKind.OK


def test_exit_zero_is_success_and_nothing_else_is(order: Order) -> None:
    assert run(driver(sys.executable, "-S", "-I", "-c", ""), order).ending.kind is EndingKind.OK
    red = run(driver(sys.executable, "-S", "-I", "-c", "import sys; sys.exit('no luck')"), order).ending
    assert (red.kind, red.reason) == (EndingKind.OWN_ERROR, "it exited with 1: no luck")


def test_a_type_without_a_command_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        driver()
    assert caught.value.hint


async def test_a_check_looks_for_the_program(tmp_path: Path) -> None:
    program = tmp_path / "my-agent"
    assert not (await driver("my-agent").check({"PATH": str(tmp_path)})).installed
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert (await driver("my-agent").check({"PATH": str(tmp_path)})).installed
