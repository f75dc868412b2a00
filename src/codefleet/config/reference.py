"""The reference page of the configuration, made from the table of keys."""

from __future__ import annotations

from collections.abc import Iterator

from codefleet.config.initial import default_text
from codefleet.config.keys import HOME_FILE, KEYS, PROJECT_FILES, Key

_HEAD = f"""# Configuration

Two TOML files hold the settings: `{HOME_FILE}` of the home (how this machine runs the fleet) and `{PROJECT_FILES[0]}` of
the project (or `{PROJECT_FILES[1]}`; never both). An unknown key, a wrong value or a key in the wrong file is refused
with its file and line.

A higher one wins: flag, `CODEFLEET_*` variable, variable of an earlier tool, project's file, home's file, default.
Tables merge key by key; a list replaces the list below it. `codefleet config show --show-origin` names the origin of every value.

Where a key may stand: **home** only, **project** only, or **both**. Keys marked *trust* can execute or loosen something: from a
project's file they count only after `codefleet trust`, and they are read from the tree of the branch that work is for.

A size is written like `"512MB"`. An empty text, list or table, and 0 for a limit, mean "none".
"""
_OTHERS = """
## Other variables

| variable | meaning |
|---|---|
| `CODEFLEET_HOME`, else `FLEET_HOME`, else `FLEET_BASE_DIR` | the home; default `~/.codefleet` |
| `CODEFLEET_WORKDIR` | the folder that a command is about; default: the current one |
| `CODEFLEET_DEBUG` | a traceback with every error, as `--debug` |
"""

#: What an entry of a named table must have: `driver` of an own agent type, `command` of a gate.
_REQUIRED = {("agents", "*", "driver"), ("gates", "*", "command")}


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_section(name) for name in _sections()) + _OTHERS


def _sections() -> Iterator[str]:
    yield from dict.fromkeys(_section_of(key) for key in KEYS)


def _section_of(key: Key) -> str:
    return ".".join(key.path[:-1]).replace("*", "NAME")


def _section(name: str) -> str:
    title = f"`[{name}]`" if name else "The home"
    head = "| key | default | where | set by | meaning |\n|---|---|---|---|---|\n"
    return f"\n## {title}\n\n{head}" + "".join(_line(key) for key in KEYS if _section_of(key) == name)


def _line(key: Key) -> str:
    where = "home" if key.home_only else "project" if key.project_only else "both"
    where += ", *trust*" if key.trust else ""
    ways = [f"`{way}`" for way in _ways(key)]
    meaning = f"{key.meaning} ({key.kind.name})"
    cells = (f"`{key.path[-1]}`", _default(key), where, " ".join(ways), meaning.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |\n"


def _ways(key: Key) -> tuple[str, ...]:
    path = tuple("NAME" if part == "*" else part for part in key.path)
    flag = (key.flag,) if key.flag else ()
    return (*flag, *key.native(path), *key.foreign(path), *(f"{alias}=" for alias in key.aliases))


def _default(key: Key) -> str:
    return "required" if key.path in _REQUIRED else f"`{default_text(key)}`"
