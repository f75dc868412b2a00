"""All commands by name, with the line that help shows. A command's module is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and what it is in a line."""

    module: str
    text: str
    section: str
    attribute: str = ""
    """Its name in the module, when that is not the command's own."""
    alias: str = ""
    """What it is another word for."""
    hidden: bool = False


def _entry(section: str, module: str, text: str, attribute: str = "", **more: Any) -> Entry:
    return Entry(f"codefleet.cli.commands.{module}", text, section, attribute, **more)


COMMANDS: Mapping[str, Entry] = {
    "init": _entry("Set up", "begin", "The home, and inside a git repository the project too."),
    "config": _entry("Set up", "settings", "Show, change and check settings, and say where each comes from."),
    "doctor": _entry("Set up", "about", "Look at agents, git, store and leftovers; repair what can be proven."),
    "trust": _entry("Set up", "settings", "Let this repository's setup, gates and agent settings run here."),
    "demo": Entry(
        "codefleet.cli.demo", "A real repository, a backlog, scripted agents, live; no key needed.", "Set up"
    ),
    "completion": _entry("Set up", "about", "Print the completion of bash, zsh or fish."),
    "add": _entry("Give work", "give", "Put a task on the backlog."),
    "edit": _entry("Give work", "give", "Change a task; what its state forbids is refused in words."),
    "start": _entry("Run the fleet", "start", "Work the backlog off: rules, runners, gates; in the foreground."),
    "pause": _entry("Run the fleet", "act", "No new starts: of the fleet, an agent type, a project, a task."),
    "resume": _entry("Run the fleet", "act", "New starts again."),
    "status": _entry("See", "status", "What the fleet is doing: engines, agents, counts, questions, pauses."),
    "tasks": _entry("See", "tasks", "Tasks; without a filter those in progress."),
    "show": _entry("See", "show", "Everything about one thing: state and why, runs, evidence, result."),
    "why": _entry("See", "show", "The rule that holds a task; without one, why nothing runs."),
    "task": _entry("See", "read", "One artifact of a task, raw: log, plan, knowledge, qa, result, diff."),
    "logs": _entry("See", "read", "What an agent does and says; without a target the fleet's own log."),
    "events": _entry("See", "read", "The stream of events."),
    "answer": _entry("Act", "act", "Answer a question; without a target list the open ones."),
    "review": _entry("Act", "review", "What awaits judgement, its diff and evidence; judge it."),
    "retry": _entry("Act", "act", "A failed, waiting or cancelled task again."),
    "cancel": _entry("Act", "act", "Stop tasks and mark them cancelled; their workspaces are kept."),
    "run-single": _entry("Run the fleet", "start", "One runner in the foreground.", alias="start --name NAME"),
    "run": _entry("Run the fleet", "start", "Work the backlog off.", "start", alias="start"),
    "add-task": _entry("Give work", "give", "Put a task on the backlog.", "add", alias="add"),
    "list-tasks": _entry("See", "tasks", "Tasks in any state.", "list_tasks", alias="tasks --all -n 20"),
    "ready": _entry("See", "tasks", "Tasks that may start, one a line.", alias="tasks --ready"),
    "log": _entry("See", "read", "The newest log of the fleet, raw.", alias="logs --raw"),
    "version": _entry("Set up", "about", "Print the version.", alias="--version"),
    "agent": _entry("Act", "agent", "For agents inside a run.", hidden=True),
}

SECTIONS = ("Set up", "Give work", "Run the fleet", "See", "Act")


class Tree(click.Group):
    """The commands of the table; help imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        attribute = entry.attribute or cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(entry.module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 3)
            also = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}.{also}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        for section in SECTIONS:
            shown = [(name, entry) for name, entry in COMMANDS.items() if entry.section == section]
            rows = [(name, entry.text) for name, entry in shown if not entry.alias and not entry.hidden]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)
        others = [(name, entry.alias) for name, entry in COMMANDS.items() if entry.alias]
        with formatter.section("Other words"):
            formatter.write_dl(others)
