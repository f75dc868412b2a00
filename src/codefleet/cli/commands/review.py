"""`review`: judge what awaits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.commands import show
from codefleet.cli.frame import Frame, command, offered

if TYPE_CHECKING:
    from codefleet.app import Fleet


@command("review")
@click.argument("target", required=False, shell_complete=offered)
@click.option("--diff", is_flag=True, help="Print its diff.")
@click.option("--approve", is_flag=True, help="Accept it; what depends on it may start.")
@click.option("--reject", metavar="TEXT", help="Send it back with what is to be changed.")
@click.option("--comment", nargs=2, multiple=True, metavar="FILE:LINE TEXT", help="A remark on a line, for --reject.")
def review(
    frame: Frame,
    target: str | None,
    reject: str | None,
    comment: Sequence[tuple[str, str]],
    *,
    diff: bool,
    approve: bool,
) -> None:
    """What awaits judgement; with TARGET its evidence and diff, or a verdict."""
    if approve and (reject is not None or comment):
        raise click.UsageError("--approve goes with neither --reject nor --comment")
    if target is None:
        if approve or reject is not None or comment or diff:
            raise click.UsageError("say which task")
        _list(frame)
    elif approve or reject is not None or comment:
        _judge(frame, target, None if approve else _comments(reject, comment))
    else:
        _look(frame, target, diff=diff)


def _comments(text: str | None, lines: Sequence[tuple[str, str]]) -> str:
    return "\n".join([*([text] if text is not None else []), *(f"{place}: {remark}" for place, remark in lines)])


def _list(frame: Frame) -> None:
    found = frame.run(lambda fleet: fleet.awaiting())
    rows = [[one["id"], one["awaiting"], _proof(one), words.one_line(one["title"])] for one in found]
    frame.data(found, words.table(["ID", "AWAITS", "PROOF", "TITLE"], rows, wide="TITLE") if rows else "")
    if not found:
        frame.say("nothing awaits review")


def _proof(one: Mapping[str, Any]) -> str:
    return "proven" if one["proven"] else "unproven"


def _judge(frame: Frame, target: str, comments: str | None) -> None:
    from codefleet.app import documents

    async def work(fleet: Fleet) -> Any:
        return await (fleet.approve(target) if comments is None else fleet.reject(target, comments))

    after = frame.run(work)
    frame.data(documents.task(after), f"{after.id}  {words.state(after.status.value)}  {words.clean(after.title)}")


def _look(frame: Frame, target: str, *, diff: bool) -> None:
    async def work(fleet: Fleet) -> tuple[dict[str, Any], str]:
        found = await fleet.show(target)
        return found, await fleet.artifact(target, "diff") if diff else ""

    found, patch = frame.run(work)
    frame.data(found | ({"diff": patch} if diff else {}), lambda: "" if diff else show.task(found))
    if diff and not frame.json:
        frame.raw(patch)
