"""What every command shares: the options that work everywhere, and how it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from codefleet.app import Fleet
    from codefleet.core.layout import Home

T = TypeVar("T")


@dataclass(slots=True)
class Frame:
    """The options that stand before or behind any command."""

    home_flag: str = ""
    folder: str = ""
    json: bool = False
    debug: bool = False
    quiet: bool = False
    said: set[str] = field(default_factory=set)

    @property
    def cwd(self) -> Path:
        """Where the person stands, with `-C`."""
        from pathlib import Path

        from codefleet.core.errors import InvalidInput

        try:
            here = Path(os.environ.get("CODEFLEET_WORKDIR") or Path.cwd())
        except FileNotFoundError as error:
            raise InvalidInput("the folder that you stand in is gone", hint="go to one that is there") from error
        path = here / Path(self.folder).expanduser() if self.folder else here
        if not path.is_dir():
            raise InvalidInput(f"there is no folder {path}", hint="-C takes a folder that is there")
        return Path(os.path.abspath(path))  # noqa: PTH100 - links that a person chose stay

    @property
    def home_path(self) -> Path:
        """The folder of the fleet."""
        from codefleet.app import homes

        return homes.choose(os.environ, self.home_flag)

    def home(self) -> Home:
        from codefleet.core.layout import Home

        return Home(self.home_path)

    def run(
        self,
        work: Callable[[Fleet], Awaitable[T]],
        *,
        create: bool = False,
        backlog: bool = True,
        flags: dict[str, str] | None = None,
    ) -> T:
        """Open the fleet, do the work, close it. Without `backlog`: only its settings."""
        import anyio

        from codefleet.app import homes, open_fleet

        async def opened() -> T:
            async with open_fleet(
                self.home(), environ=os.environ, cwd=self.cwd, flags=flags, create=create, backlog=backlog
            ) as fleet:
                if twice := homes.twice(os.environ):
                    self.once(twice)
                if fleet.missing:
                    self.once(f"there is no fleet in {fleet.home.path} yet: `codefleet init` makes one")
                return await work(fleet)

        return anyio.run(opened)

    def data(self, value: Any, words: Callable[[], str] | str = "") -> None:
        """The answer of a command: with `--json` as one object, else in words, on stdout."""
        if self.json:
            from codefleet.app.stored import envelope

            self.line(envelope(value))
        else:
            text = words() if callable(words) else words
            if text:
                click.echo(text)

    def line(self, document: Any) -> None:
        """One JSON object on one line of stdout."""
        import json

        sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def tell(self, document: Any, words: Callable[[Any], str]) -> None:
        """One piece of a stream: a JSON object on a line, or words if there are any."""
        if self.json:
            self.line(document)
        elif text := words(document):
            click.echo(text)
            sys.stdout.flush()

    def raw(self, text: str) -> None:
        """A text as it is; on a terminal without anything that steers it."""
        from codefleet.cli.words import clean

        shown = clean(text) if sys.stdout.isatty() else text
        sys.stdout.write(shown if shown.endswith("\n") or not shown else shown + "\n")

    def say(self, text: str) -> None:
        """Words beside the answer, on stderr."""
        if not self.quiet:
            click.echo(text, err=True)

    def once(self, text: str) -> None:
        """Words on stderr that a command says one time, however often it opens the fleet."""
        if text not in self.said:
            self.said.add(text)
            self.say(text)


def offered(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks that a shell offers to complete."""
    from click.shell_completion import CompletionItem

    from codefleet.app import glance, homes

    found = glance.titles(homes.choose(os.environ), incomplete)
    return [CompletionItem(key, help=" ".join(title.split())[:60]) for key, title in found]


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Frame), name, value)

    return callback


def shared() -> list[click.Parameter]:
    """The global options, as parameters of any command."""
    rows: list[tuple[tuple[str, ...], str, str, dict[str, Any]]] = [
        (
            ("--home",),
            "home_flag",
            "The folder of the fleet (CODEFLEET_HOME; default ~/.codefleet).",
            {"metavar": "PATH"},
        ),
        (("-C",), "folder", "Act as if started in this folder.", {"metavar": "PATH"}),
        (("--json",), "json", "Print one JSON object on stdout.", {"is_flag": True}),
        (("--debug",), "debug", "Show where an error came from.", {"is_flag": True}),
        (("-q", "--quiet"), "quiet", "No words on stderr but errors.", {"is_flag": True}),
    ]
    return [
        click.Option([*names, f"shared_{field}"], help=text, expose_value=False, callback=_remember(field), **more)
        for names, field, text, more in rows
    ]


def columns() -> int:
    """How wide the screen is. (`shutil` says the same and takes longer to load than help to show.)"""
    try:
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(sys.stdout.fileno()).columns
    except (ValueError, OSError):
        return 80


HELP = {"help_option_names": ["-h", "--help"], "terminal_width": max(50, min(columns(), 100) - 2)}


class FleetCommand(click.Command):
    """A command that also takes the global options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["context_settings"] = HELP | (kwargs.get("context_settings") or {})
        super().__init__(*args, **kwargs)
        own = {name for param in self.params for name in param.opts}
        self.params += [param for param in shared() if not own.intersection(param.opts)]


def command(name: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command; it gets the `Frame` first."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        made: click.Command = click.command(name, cls=FleetCommand, **more)(click.pass_obj(function))
        return made

    return decorate
