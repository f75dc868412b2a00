"""`add` and `edit`: work onto the backlog."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli.frame import Frame, command, offered
from codefleet.cli.words import clean, count, state

if TYPE_CHECKING:
    from codefleet.app import Added, Fleet, Place

TEXT = "The whole wish; - reads it from stdin."
LABELS = "Labels, separated by commas; repeatable."
SCOPE = "Globs of files it may write, separated by commas; repeatable."
DEPENDS = "Tasks that must be completed before, separated by commas; repeatable."


@command("add")
@click.argument("title", required=False)
@click.option("-t", "--title", "named", metavar="TITLE", help="The title, in another place.")
@click.option("-d", "--description", default="", metavar="TEXT", help=TEXT)
@click.option("-p", "--priority", type=int, default=3, show_default=True, help="1 to 5; 5 is most urgent.")
@click.option("-l", "--labels", multiple=True, metavar="L,…", help=LABELS)
@click.option("-f", "--file-scope", multiple=True, metavar="GLOB,…", help=SCOPE)
@click.option("--depends-on", multiple=True, metavar="ID,…", help=DEPENDS)
@click.option("-c", "--complexity", default="medium", show_default=True, help="trivial, small, medium, large or xl.")
@click.option("-a", "--agent", "--coder", "--executor", "agent", default="", help="The agent type that shall do it.")
@click.option("-m", "--model", default="", help="The model that its agent shall use.")
@click.option("--project", type=click.Path(path_type=Path), help="The project, when it is not here.")
@click.option("--expects", default="change", show_default=True, help="A change of files, or a result in words.")
@click.option("--next", "first", is_flag=True, help="Before everything that waits.")
def add(frame: Frame, title: str | None, named: str | None, project: Path | None, **fields: Any) -> None:
    """Put a task on the backlog and print its id, title, priority and status."""
    from codefleet.core.drafts import Draft

    if title and named:
        raise click.UsageError("the title is given twice")
    text = title if title is not None else named
    if text is None:
        raise click.UsageError("the title is missing")
    draft = Draft(title=text, **_lists(fields) | {"description": read(fields["description"])})
    path = frame.cwd / project.expanduser() if project else None

    async def work(fleet: Fleet) -> tuple[Added, bool]:
        added = await fleet.add(draft, path)
        return added, (await fleet.status())["manager"]["running"]

    added, running = frame.run(work, create=True)
    _print(frame, added, running=running)


def _print(frame: Frame, added: Added, *, running: bool) -> None:
    from codefleet.app import documents

    task = added.task
    words = f"{task.id}  {state(task.status.value)}  priority {task.priority}  {clean(task.title)}"
    frame.data(documents.task(task), words)
    for near in added.near:
        frame.say(f"nearly the same: {near.id} ({near.status.value}) {clean(near.title)}")
    if added.place.fresh:
        frame.say(_new_project(added.place))
    if not added.place.settings.trusted:
        frame.say(f"it waits for your trust: `codefleet trust {added.place.repository.path}` says what would run here")
    if not running:
        frame.say("no engine runs: `codefleet start` works the backlog off")


def _new_project(place: Place) -> str:
    gates = len(place.settings.gates)
    proof = f"with {count(gates, 'gate')}" if gates else "without gates, so its work will be unproven"
    more = "" if gates or not place.repository.git else "; `codefleet init` proposes some"
    apart = "" if place.repository.git else "; without git, agents work in the folder itself"
    return f"project {place.project.name} ({place.repository.path}) is known from now on, {proof}{more}{apart}"


def _lists(fields: dict[str, Any]) -> dict[str, Any]:
    """Options as the fields of a draft."""
    return {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in fields.items()}


def read(text: str) -> str:
    """A text that an option gives, or stdin for `-`."""
    return sys.stdin.read() if text == "-" else text


@command("edit")
@click.argument("task", shell_complete=offered)
@click.option("-t", "--title", help="Another title.")
@click.option("-d", "--description", metavar="TEXT", help=TEXT)
@click.option("-p", "--priority", type=int, help="1 to 5; 5 is most urgent.")
@click.option("-l", "--labels", multiple=True, metavar="L,…", help=LABELS)
@click.option("-f", "--file-scope", multiple=True, metavar="GLOB,…", help=SCOPE)
@click.option("--depends-on", multiple=True, metavar="ID,…", help=DEPENDS + ' "" for none.')
@click.option("-c", "--complexity", help="trivial, small, medium, large or xl.")
@click.option("-a", "--agent", "--coder", "--executor", "agent", help='The agent type; "" for any.')
@click.option("-m", "--model", help='The model; "" for the agent\'s own.')
@click.option("--hold", metavar="TEXT", help="It may not start, for this reason.")
@click.option("--unhold", is_flag=True, help="It may start again.")
@click.option("--now", is_flag=True, help="Interrupt the run that works on it; the next one begins with the change.")
def edit(
    frame: Frame, task: str, depends_on: tuple[str, ...], hold: str | None, *, unhold: bool, now: bool, **fields: Any
) -> None:
    """Change a task. All of it is done, or nothing."""
    from codefleet.app import documents
    from codefleet.core import drafts
    from codefleet.core.transitions.people import Edit

    if hold is not None and unhold:
        raise click.UsageError("--hold and --unhold exclude each other")
    given = {name: value for name, value in fields.items() if value not in (None, ())}
    if not given and not depends_on and hold is None and not unhold:
        raise click.UsageError("say what is to be changed")
    if "description" in given:
        given["description"] = read(given["description"])
    if "complexity" in given:
        given["complexity"] = drafts.complexity(given["complexity"])
    reason = drafts.comment(hold, "reason of the hold") if hold is not None else ""

    async def work(fleet: Fleet) -> Any:
        wanted = depends_on or None
        return await fleet.edit(task, Edit(**given), depends_on=wanted, hold=reason, unhold=unhold, now=now)

    after = frame.run(work)
    words = f"{after.id}  {state(after.status.value)}  priority {after.priority}  {clean(after.title)}"
    frame.data(documents.task(after), words)
