"""From arguments to an exit code: the one place where errors become words."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator

import click

from codefleet import __version__
from codefleet.cli.frame import HELP, Frame, shared
from codefleet.cli.tree import Tree

INTERRUPTED = 130

EPILOG = "Exit codes: 0 done, 1 it failed, 2 wrong usage or refused, 3 no such thing, 4 store out of reach."


def root() -> click.Group:
    """The command that holds all others."""
    version = click.version_option(__version__, "--version", prog_name="codefleet", message="%(prog)s %(version)s")
    text = "Command a fleet of AI coding agents on real repositories."
    tree = Tree("codefleet", params=shared(), help=text, epilog=EPILOG, no_args_is_help=False, context_settings=HELP)
    tree.invoke_without_command = True
    tree.callback = _bare
    return version(tree)


def _bare() -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def run(args: list[str]) -> int:
    """Do what the arguments say; the exit code."""
    frame, output = Frame(), sys.stdout  # click puts something else in its place when a pipe has broken
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = root().main(args, prog_name=_called(), standalone_mode=False, obj=frame)
        sys.stdout.flush()
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as end:
        return _nobody_reads() if sys.stdout is not output else _code(end)
    except click.ClickException as error:
        return _refused(error)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place where anything can be said in words
        return _failed(error, debug=frame.debug or "--debug" in args or _debugs())
    return code if isinstance(code, int) else 0


def _code(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else 0


def _debugs() -> bool:
    return bool(os.environ.get("CODEFLEET_DEBUG") or os.environ.get("AI_FLEET_DEBUG"))


def _called() -> str:
    name = os.path.basename(sys.argv[0])  # noqa: PTH119 - pathlib takes longer to load than help to show
    return name if name in {"fleet", "flt", "codefleet-commander"} else "codefleet"


def _nobody_reads() -> int:
    """Whoever read our output has enough: that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _refused(error: click.ClickException) -> int:
    ctx = getattr(error, "ctx", None)
    _say("error", error.format_message())
    if ctx is not None:
        _say("hint", f"`{ctx.command_path} --help` says how it is used")
    return error.exit_code


def _failed(error: Exception, *, debug: bool) -> int:
    from codefleet.core.errors import CodeFleetError, meaning

    if debug:
        import traceback

        traceback.print_exception(error)
    known = [one for one in _leaves(error) if isinstance(one, CodeFleetError)]
    for one in known:
        _say("error", one.message)
        if one.hint:
            _say("hint", one.hint)
    if not known:
        _unknown(error)
    return meaning(known[0])[0] if known else 1


DENIED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def _unknown(error: Exception) -> None:
    """What the system denies is no defect of ours."""
    denied = [one for one in _leaves(error) if isinstance(one, OSError) and one.errno in DENIED]
    for one in denied:
        _say("error", f"{one.filename}: {one.strerror}" if one.filename else str(one.strerror))
        _say("hint", "look at its owner, its permissions and the space that is left there; --debug shows more")
    if not denied:
        _say("error", f"{type(error).__name__}: {error}")
        _say("hint", "this is a defect of codefleet; --debug shows where it happened")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, each by itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _say(label: str, text: str) -> None:
    from codefleet.cli.words import clean

    print(f"{label}: {clean(text)}", file=sys.stderr)  # noqa: T201 - the terminal is what this is for
