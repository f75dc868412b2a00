"""`config` and `trust`: what holds, where it comes from, and what a repository may run here."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.frame import HELP, FleetCommand, Frame, command

if TYPE_CHECKING:
    from codefleet.app import Fleet


class Config(click.Group):
    """Options of `config show` may stand behind `config` itself."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words_ = {"-e": "edit", "--edit": "edit", "-v": "validate", "--validate": "validate"}
        rest = [word for word in args if word not in {"-h", "--help"}]
        if rest and rest[0] in words_:
            args = [words_[rest[0]], *args[1:]]
        elif rest and rest[0].startswith("-"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("config", cls=Config, invoke_without_command=True, context_settings=HELP)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Show, change and check settings, and say where each comes from. Without a word: show."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


def _repository(frame: Frame) -> Path | None:
    """The project that we stand in, if any."""
    from codefleet.app import configuring

    return frame.run(configuring.repository, backlog=False)


@command("show")
@click.option("--raw", is_flag=True, help="The file as it is.")
@click.option("--show-origin", is_flag=True, help="Where each value comes from.")
@click.option("--project", is_flag=True, help="With --raw: the project's file.")
def show(frame: Frame, *, raw: bool = False, show_origin: bool = False, project: bool = False) -> None:
    """All settings that hold here."""
    from codefleet.app import configuring

    if raw:
        path = configuring.file(frame.home(), _repository(frame), project=project)
        text = path.read_text() if path.exists() else ""
        frame.data({"path": str(path), "text": text}, text.rstrip("\n"))
        return
    rows, warnings = frame.run(configuring.rows, backlog=False)
    frame.data(rows, "\n".join(_row(row, show_origin=show_origin) for row in rows))
    for warning in warnings:
        frame.say(warning)


def _row(row: dict[str, Any], *, show_origin: bool) -> str:
    origin = f"  # {row['origin']}" if show_origin else ""
    return words.clean(f"{row['key']} = {row['text']}{origin}")


@command("set")
@click.argument("assignments", nargs=-1, required=True, metavar="KEY=VALUE…")
@click.option("--project", is_flag=True, help="In the project's file.")
def set_(frame: Frame, assignments: tuple[str, ...], *, project: bool) -> None:
    """Set values in the home's file; comments and order stay. What makes no sense is refused."""
    from codefleet.app import configuring

    path = configuring.change(frame.home(), _repository(frame), assignments, project=project)
    frame.data({"path": str(path), "set": list(assignments)}, f"{path}: {', '.join(assignments)}")


@command("edit")
@click.option("--project", is_flag=True, help="The project's file, even if there is none yet.")
def edit(frame: Frame, *, project: bool) -> None:
    """Open the project's file, or the home's, in $EDITOR, and check it afterwards."""
    from codefleet.app import configuring, homes

    homes.make(frame.home())
    repository = _repository(frame)
    project = project or (repository is not None and configuring.has_file(repository))
    _open(configuring.file(frame.home(), repository, project=project))
    _validate(frame, repository)


def _open(path: Path) -> None:
    """Wait for the person's editor."""
    from codefleet.core.errors import Failed

    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        code = subprocess.run([*editor, str(path)], check=False).returncode
    except OSError as error:
        raise Failed(
            f"{editor[0]} can not be started: {error.strerror}", hint="set EDITOR to one that is there"
        ) from error
    if code:
        raise Failed(f"{editor[0]} ended with {code}")


@command("validate")
def validate(frame: Frame) -> None:
    """Say what is wrong with the settings. Exit 1 when something is."""
    _validate(frame, _repository(frame))


def _validate(frame: Frame, repository: Path | None) -> None:
    from codefleet.app import configuring

    found = configuring.problems(frame.home(), repository)
    lines = [f"{one['text']}{'  ' + one['hint'] if one['hint'] else ''}" for one in found]
    frame.data(found, words.clean("\n".join(lines)))
    if found:
        click.get_current_context().exit(1)
    frame.say("the settings are valid")


for _command in (show, set_, edit, validate):
    config.add_command(_command)


# ---------------------------------------------------------------------------------------------------------- trust


@click.command("trust", cls=FleetCommand)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Allow it without asking.")
@click.option("--show", "only_show", is_flag=True, help="Only say what would be allowed.")
@click.option("--revoke", is_flag=True, help="Allow it nothing any more.")
@click.pass_obj
def trust(frame: Frame, path: Path | None, *, yes: bool, only_show: bool, revoke: bool) -> None:
    """Let this repository's setup, gates and agent settings run on this machine. Asked again when they change."""
    place = frame.cwd / path.expanduser() if path else frame.cwd
    if revoke:
        known = frame.run(lambda fleet: _revoke(fleet, place), backlog=False)
        frame.data({"revoked": known}, "nothing of it may run here any more" if known else "it was not trusted")
        return
    shown = frame.run(lambda fleet: _asked(fleet, place), backlog=False)
    frame.data(shown, asked_words(shown))
    if shown["state"] in {"trusted", "nothing"} or only_show:
        return
    if not (yes or agreed(frame)):
        frame.say("not trusted: its commands do not run here; `codefleet trust --yes` allows them")
        click.get_current_context().exit(1)
    frame.run(lambda fleet: give(fleet, place, shown), create=True)
    frame.say("trusted")


async def _asked(fleet: Fleet, place: Path) -> dict[str, Any]:
    from codefleet.app import beginning

    resolved = await beginning.asked(fleet, place)
    return asked_document(fleet, resolved)


def asked_document(fleet: Fleet, resolved: Any) -> dict[str, Any]:
    """What a repository asks for, and whether it has it."""
    from codefleet.app import beginning

    return {
        "repository": str(resolved.asked.repository),
        "state": resolved.state.value,
        "digest": resolved.asked.digest,
        "items": beginning.items(fleet, resolved),
    }


def asked_words(shown: dict[str, Any]) -> str:
    """The same for a person who is to decide."""
    if shown["state"] == "nothing":
        return f"{shown['repository']} asks for nothing that needs trust"
    told = [item for item in shown["items"] if not item["words"].endswith(": []")]
    lines = [f"  {_mark(item['state'])}{words.clean(item['words'])}" for item in told]
    wants = "may do on this machine" if shown["state"] == "trusted" else "wants on this machine"
    return "\n".join([f"{shown['repository']} ({shown['state']}) {wants}:", *lines])


def _mark(state: str) -> str:
    return {"new": "+ ", "changed": "~ ", "nothing": "- "}.get(state, "  ")


def agreed(frame: Frame) -> bool:
    """Ask, where somebody can answer."""
    return sys.stdin.isatty() and not frame.json and click.confirm("Let these run here?", err=True)


async def give(fleet: Fleet, place: Path, shown: dict[str, Any]) -> None:
    """Allow exactly what was shown: when it has changed meanwhile, nothing is allowed."""
    from codefleet.app import beginning
    from codefleet.core.errors import NotAllowed

    resolved = await beginning.asked(fleet, place)
    if resolved.asked.digest != shown["digest"]:
        raise NotAllowed("it has changed while you looked at it", hint="look again with `codefleet trust`")
    await beginning.give(fleet, resolved)


async def _revoke(fleet: Fleet, place: Path) -> bool:
    from codefleet.app import beginning

    return await beginning.revoke(fleet, place)
