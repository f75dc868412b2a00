"""`init`: a home, and in a repository a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from codefleet.cli import words
from codefleet.cli.commands import settings
from codefleet.cli.frame import Frame, command

if TYPE_CHECKING:
    from codefleet.app import Fleet


@command("init")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--type", "kind", default="", help="rails, node, python, generic or minimal; else it is detected.")
@click.option("--home", is_flag=False, flag_value="", metavar="[PATH]", help="Only the home; with PATH: that home.")
@click.option("--trust", is_flag=True, help="Allow its setup, gates and agent settings to run here, without asking.")
@click.option("--force", is_flag=True, help="Write the settings files anew; the earlier ones are kept as NAME.before.")
def init(frame: Frame, path: Path | None, kind: str, home: str | None, *, trust: bool, force: bool) -> None:
    """Make the home, and in a git repository its project: type, setup and gates are detected, shown, and run only when
    you allow it. What is there stays."""
    place = frame.cwd / path.expanduser() if path else frame.cwd
    frame.home_flag = home or frame.home_flag

    async def work(fleet: Fleet) -> dict[str, Any]:
        from codefleet.app import beginning

        begun = await beginning.init(fleet, place, kind=kind, home_only=not home and home is not None, force=force)
        shown = settings.asked_document(fleet, begun.resolved) if begun.resolved else None
        return await _document(fleet, begun, shown)

    found = frame.run(work, create=True)
    asked = found["trust"]
    frame.data(found, lambda: _words(found))
    if asked and asked["state"] in {"new", "changed"}:
        _trust(frame, place, asked, given=trust)


async def _document(fleet: Fleet, begun: Any, shown: dict[str, Any] | None) -> dict[str, Any]:
    from codefleet.app import beginning

    checks = await beginning.agents(fleet)
    return {
        "home": str(begun.home),
        "written": [str(path) for path in begun.written],
        "project": begun.place.project.name if begun.place else None,
        "project_id": begun.place.project.id if begun.place else None,
        "type": begun.kind or None,
        "gates": [gate.name for gate in begun.place.settings.gates] if begun.place else [],
        "trust": shown,
        "agents": {
            name: {
                "installed": one.installed,
                "version": one.version or None,
                "logged_in": one.logged_in,
                "detail": one.detail or None,
            }
            for name, one in checks.items()
        },
    }


def _words(found: dict[str, Any]) -> str:
    lines = [f"Fleet home initialized at {found['home']}"]
    lines += [f"  wrote {path}" for path in found["written"]]
    if found["project"]:
        kind = f" ({found['type']})" if found["type"] else ""
        lines.append(f"project {words.clean(found['project'])}{kind}")
        if not found["gates"] and not any(item["key"].startswith("gates.") for item in found["trust"]["items"]):
            lines.append("no gates: work will be unproven until you give it some under [gates] of codefleet.toml")
        lines.append(settings.asked_words(found["trust"]))
    else:
        lines.append("no git repository here: in one, `codefleet init` makes the project too")
    return "\n".join([*lines, *_agents(found["agents"])])


def _agents(agents: dict[str, Any]) -> list[str]:
    from codefleet.app.doctor import agent_words

    return [
        f"agent {agent_words(name, one['version'] or '', one['logged_in'], installed=one['installed'])}{_detail(one)}"
        for name, one in agents.items()
    ]


def _detail(one: dict[str, Any]) -> str:
    return f" ({words.clean(one['detail'])})" if one["detail"] else ""


def _trust(frame: Frame, place: Path, asked: dict[str, Any], *, given: bool) -> None:
    """Its commands run here only with a person's word."""
    if given or settings.agreed(frame):
        frame.run(lambda fleet: settings.give(fleet, place, asked), create=True)
        frame.say("trusted: these run here from now on; you are asked again when they change")
    else:
        frame.say("not trusted yet: `codefleet trust` lets these run here; tasks wait for that")
