"""`answer`, `retry`, `cancel`, `pause`, `resume`: a person's word on what is there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli.frame import Frame, command, offered
from codefleet.cli.words import clean, since, state

if TYPE_CHECKING:
    from codefleet.app import Fleet
    from codefleet.app.answers import Done


@command("answer")
@click.argument("target", required=False, shell_complete=offered)
@click.argument("text", required=False)
def answer(frame: Frame, target: str | None, text: str | None) -> None:
    """Answer the question of TARGET (a task, or a pause) with TEXT; - reads it from stdin.

    Without TARGET the open questions are listed.
    """
    if target is None:
        asked = frame.run(lambda fleet: fleet.questions())
        frame.data(asked, lambda: questions(asked))
        return
    words = text if text is not None else _ask(frame, target)
    words = sys.stdin.read() if words == "-" else words
    after = frame.run(lambda fleet: fleet.answer(target, words))
    frame.data(after, lambda: _answered(after))


def _ask(frame: Frame, target: str) -> str:
    """The answer from the terminal, below its question."""
    if not sys.stdin.isatty():
        raise click.UsageError("the answer is missing; - reads it from stdin")
    shown = frame.run(lambda fleet: fleet.show(target))
    asked = shown.get("question")
    if asked and asked["open"]:
        click.echo(_text(asked), err=True)
    return str(click.prompt("answer", err=True))


def _answered(after: dict[str, Any]) -> str:
    if "selector" in after:
        return f"{after['selector']} goes on"
    return f"{after['id']}  {state(after['status'])}  {clean(after['title'])}"


def questions(asked: Sequence[dict[str, Any]]) -> str:
    """The open questions, each with how it is answered."""
    if not asked:
        return "no open questions"
    return "\n\n".join(_question(one) for one in asked)


def _question(one: dict[str, Any]) -> str:
    waits = "its agent waits for it" if one["live"] else "parked"
    head = f"{one['id']}  {clean(one['about'])}  ({since(one['asked_at'])} ago, {waits})"
    text = _text(one).replace("\n", "\n  ")
    return f"{head}\n  {text}\n  codefleet answer {one['task_id'] or one['id']} TEXT"


def _text(one: dict[str, Any]) -> str:
    """What is asked, and the answers to choose from."""
    return "\n".join([clean(one["text"]), *(f"- {clean(option)}" for option in one["options"])])


@command("retry")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…", shell_complete=offered)
def retry(frame: Frame, targets: tuple[str, ...]) -> None:
    """Try tasks again, with fresh counters."""
    _tasks(frame, frame.run(lambda fleet: fleet.retry(targets)))


@command("cancel")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…", shell_complete=offered)
@click.option("--not-started", is_flag=True, help="Leave alone what has been begun.")
def cancel(frame: Frame, targets: tuple[str, ...], *, not_started: bool) -> None:
    """Stop tasks and mark them cancelled. Their workspaces, branches and refs are kept."""
    _tasks(frame, frame.run(lambda fleet: fleet.cancel(targets, not_started=not_started)))


def _tasks(frame: Frame, done: Done) -> None:
    """Those that were changed; then why others were not."""
    from codefleet.app import documents

    lines = [f"{task.id}  {state(task.status.value)}  {clean(task.title)}" for task in done.tasks]
    frame.data([documents.task(task) for task in done.tasks], "\n".join(lines))
    if done.refused:
        raise ExceptionGroup("refused", list(done.refused))


@command("pause")
@click.argument("targets", nargs=-1, metavar="[TARGET…]", shell_complete=offered)
@click.option("--reason", default="a person paused it", show_default=True, help="Why; shown by status and why.")
def pause(frame: Frame, targets: tuple[str, ...], reason: str) -> None:
    """No new starts: of an agent type, account:NAME, a project or a task; without TARGET of the whole fleet.

    What runs goes on.
    """

    async def work(fleet: Fleet) -> list[dict[str, Any]]:
        return await fleet.pause(targets, reason)

    found = frame.run(work, create=True)
    frame.data(found, "\n".join(f"{one['selector']} is paused: {clean(one['reason'])}" for one in found))


@command("resume")
@click.argument("targets", nargs=-1, metavar="[TARGET…]", shell_complete=offered)
def resume(frame: Frame, targets: tuple[str, ...]) -> None:
    """New starts again, of what was paused by a person or after failures; without TARGET of the whole fleet."""

    async def work(fleet: Fleet) -> tuple[set[str], list[dict[str, Any]], list[dict[str, Any]]]:
        before = {one["selector"] for one in (await fleet.status())["pauses"]}
        return before, await fleet.resume(targets), (await fleet.status())["pauses"]

    before, found, still = frame.run(work)
    frame.data(found, "\n".join(_resumed(one["selector"], before) for one in found))
    for one in still:
        frame.say(f"still paused: {one['selector']}: {clean(one['reason'])} (codefleet resume {one['selector']})")


def _resumed(selector: str, before: set[str]) -> str:
    return f"{selector} goes on" if selector in before else f"{selector} was not paused"
