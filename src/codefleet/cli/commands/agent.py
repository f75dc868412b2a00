"""`agent ask` and `agent report`: what an agent may say to the fleet from within its run. Nothing else is imported."""

from __future__ import annotations

import os
import sys

import click

from codefleet.cli.frame import HELP, Frame, command


@click.group("agent", context_settings=HELP)
def agent() -> None:
    """For agents inside a run: ask a person, report the result."""


@command("ask")
@click.argument("text")
@click.option("--option", "options", multiple=True, help="An answer to choose from; repeatable.")
@click.option("--wait", type=float, default=600.0, show_default=True, help="Seconds to wait for the answer.")
def ask(frame: Frame, text: str, options: tuple[str, ...], wait: float) -> None:
    """Ask a person and print the answer. Exit 1: nobody answered yet; end your turn, the task goes on with the answer."""
    from codefleet.engine import requests

    _end(frame, *requests.ask(os.environ, text, options, wait))


@command("report")
@click.option("--summary", required=True, help="What was done, or why nothing was to be done.")
@click.option("--status", default="completed", show_default=True, help="completed, blocked or completed_no_changes.")
@click.option("--next", "steps", multiple=True, help="A step that should follow; repeatable.")
def report(frame: Frame, summary: str, status: str, steps: tuple[str, ...]) -> None:
    """Write the result of the run. It ends nothing."""
    from codefleet.engine import requests

    _end(frame, *requests.report(os.environ, summary, status, steps))


def _end(frame: Frame, code: int, text: str) -> None:
    if code == 0:
        frame.data({"text": text}, text)
    else:
        sys.stderr.write(f"{text}\n")
    click.get_current_context().exit(code)


agent.add_command(ask)
agent.add_command(report)
