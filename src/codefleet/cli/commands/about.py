"""`version`, `completion`, `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from codefleet import __version__
from codefleet.cli import words
from codefleet.cli.frame import Frame, command

if TYPE_CHECKING:
    from codefleet.app import Fleet
    from codefleet.app.doctor import Finding

NAMES = ("codefleet", "fleet", "flt")


@command("version")
def version(frame: Frame) -> None:
    """Print the version."""
    frame.data({"version": __version__}, f"codefleet {__version__}")


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(frame: Frame, shell: str) -> None:
    """Print the shell's completion, for all names of the program.

    \b
    bash:  eval "$(codefleet completion bash)"            in ~/.bashrc
    zsh:   eval "$(codefleet completion zsh)"             in ~/.zshrc
    fish:  codefleet completion fish | source             in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if made is None:
        raise click.UsageError(f"there is no completion for {shell}")
    scripts = [_script(made(root, {}, name, f"_{name.upper()}_COMPLETE")) for name in NAMES]
    frame.data({"shell": shell, "script": "\n".join(scripts)}, "\n".join(scripts))


def _script(made: Any) -> str:
    """The script alone: no look at which shell is installed here."""
    return str(made.source_template % made.source_vars())


@command("doctor")
@click.option("--fix", is_flag=True, help="Repair what can be proven to be wrong.")
def doctor(frame: Frame, *, fix: bool) -> None:
    """Look at agents, git, the store, the project and leftovers. Exit 1 when something is wrong."""
    from dataclasses import asdict

    found: list[Finding] = []

    async def work(fleet: Fleet) -> None:
        from codefleet.app.doctor import examine

        async for finding in examine(fleet, fix=fix):
            found.append(finding)
            if not frame.json:
                click.echo(_line(finding))

    frame.run(work)
    if frame.json:
        frame.data([asdict(finding) for finding in found])
    if any(finding.ok is False and not finding.fixed for finding in found):
        click.get_current_context().exit(1)


def _line(finding: Finding) -> str:
    mark = {True: words.paint("ok", "green"), False: words.paint("!!", "red"), None: words.paint("--", "yellow")}
    sign = words.paint("fixed", "green") if finding.fixed and not finding.ok else mark[finding.ok]
    hint = f"\n      {words.clean(finding.hint)}" if finding.hint and not finding.fixed and not finding.ok else ""
    return f"{sign}  {finding.name}: {words.clean(finding.text)}{hint}"
