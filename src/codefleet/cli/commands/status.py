"""`status`: what the fleet is doing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.frame import Frame, command

if TYPE_CHECKING:
    from codefleet.app import Fleet


@command("status")
@click.option("-w", "--watch", is_flag=True, help="Stay and show it again when it changes.")
def status(frame: Frame, *, watch: bool) -> None:
    """What the fleet is doing: engines, agents, counts of tasks, questions, pauses."""
    from codefleet.app import glance

    if watch:
        frame.run(lambda fleet: _watch(frame, fleet))
    found = glance.status(frame.home_path, os.environ) or frame.run(lambda fleet: fleet.status())
    frame.data(found, lambda: screen(found))


async def _watch(frame: Frame, fleet: Fleet) -> None:
    from codefleet.cli.live import watching

    await watching(frame, fleet, fleet.status, screen)


def screen(found: Mapping[str, Any]) -> str:
    """The document of `status` in words."""
    parts = [_engines(found["manager"]), counts(found), _agents(found["agents"]), waiting(found)]
    return "\n".join(part for part in parts if part)


def _engines(manager: Mapping[str, Any]) -> str:
    if not manager["running"]:
        return "no engine runs: `codefleet start`"
    return "\n".join(_engine(engine) for engine in manager["engines"])


def _engine(engine: Mapping[str, Any]) -> str:
    name = engine["name"] or engine["id"]
    busy = f"{engine['busy']} of {words.count(engine['slots'], 'runner')} busy"
    up = f"up {words.since(engine['since'])}, beat {words.duration(engine['beat_age_s'])} ago"
    ends = ", stopping" if engine["draining"] else ""
    return f"engine {name} on {engine['host']} (pid {engine['pid']}): {busy}, {up}{ends}"


def counts(found: Mapping[str, Any]) -> str:
    """How many tasks are in each state."""
    tasks = [f"{number} {words.state(name)}" for name, number in found["tasks"].items() if number]
    more = f" · {found['unproven']} unproven" if found["unproven"] else ""
    return f"tasks: {', '.join(tasks)}{more}" if tasks else 'no tasks: `codefleet add "what is to be done"`'


def _agents(agents: list[Mapping[str, Any]]) -> str:
    shown = [one for one in agents if one["status"] != "offline"]
    if not shown:
        return ""
    rows = [
        [
            one["name"],
            words.state(one["status"]),
            one["type"],
            one["current_task_id"] or "-",
            words.since(one["last_heartbeat"]),
        ]
        for one in shown
    ]
    return words.table(["AGENT", "STATUS", "TYPE", "TASK", "HEARD"], rows)


def waiting(found: Mapping[str, Any]) -> str:
    """What waits for a person's word."""
    lines = [
        f"paused: {pause['selector']}: {words.one_line(pause['reason'])} (codefleet resume {pause['selector']})"
        for pause in found["pauses"]
    ]
    lines += [f"{words.count(hold['tasks'], 'task')} held: {words.one_line(hold['text'])}" for hold in found["holds"]]
    if found["questions"]:
        lines.append(f"{words.count(len(found['questions']), 'open question')}: `codefleet answer`")
    return "\n".join(lines)
