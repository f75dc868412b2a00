"""What kind of project a folder holds, and what could prove its work. Files are looked at; nothing is executed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Type = Literal["rails", "node", "python", "generic", "minimal"]
TYPES: tuple[Type, ...] = get_args(Type)

_LARGEST = 1 << 20
_ENVIRONMENTS = (".env", ".env.local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """A proposal for a project's settings, for a person to accept."""

    type: Type
    credential_files: tuple[str, ...] = ()
    """Those that are there."""
    possible_files: tuple[str, ...] = ()
    """Those that projects of this type may have as well."""
    setup: tuple[str, ...] = ()
    gates: Mapping[str, str] = field(default_factory=dict)


def detect(folder: Path, type_: Type | None = None) -> Detected:
    """A proposal for a folder; a given type is believed."""
    chosen = type_ or _type(folder)
    if chosen == "minimal":
        return Detected(type="minimal")
    credentials, setup, gates = _PROPOSALS[chosen]
    return Detected(
        type=chosen,
        credential_files=tuple(name for name in credentials if (folder / name).is_file()),
        possible_files=tuple(name for name in credentials if not (folder / name).is_file()),
        setup=setup(folder),
        gates=gates(folder) or _make_gates(folder),
    )


def _type(folder: Path) -> Type:
    if _has(folder, "config/application.rb", "bin/rails") or re.search(
        r"""gem ["']rails["']""", _read(folder, "Gemfile")
    ):
        return "rails"
    if _has(folder, "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile"):
        return "python"
    return "node" if _has(folder, "package.json") else "generic"


# ------------------------------------------------------------------------------------------------------- python


def _python_setup(folder: Path) -> tuple[str, ...]:
    if _has(folder, "uv.lock"):
        return ("uv sync",)
    if _has(folder, "poetry.lock"):
        return ("poetry install",)
    return ("pip install -r requirements.txt",) if _has(folder, "requirements.txt") else ()


def _python_gates(folder: Path) -> dict[str, str]:
    tools = _pyproject(folder).get("tool")
    tools = tools if isinstance(tools, dict) else {}
    run = "uv run " if _has(folder, "uv.lock") else "poetry run " if _has(folder, "poetry.lock") else ""
    gates: dict[str, str] = {}
    if "ruff" in tools or _has(folder, "ruff.toml", ".ruff.toml"):
        gates["lint"] = f"{run}ruff check ."
    if "mypy" in tools or _has(folder, "mypy.ini", ".mypy.ini"):
        gates["types"] = f"{run}mypy" if _mypy_knows_files(folder, tools) else f"{run}mypy ."
    if _python_tests(folder, tools):
        gates["test"] = f"{run}pytest -q"
    return gates


def _mypy_knows_files(folder: Path, tools: Mapping[str, Any]) -> bool:
    settings = tools.get("mypy")
    listed = isinstance(settings, dict) and bool({"files", "packages", "modules"} & set(settings))
    return listed or bool(re.search(r"(?m)^(files|packages|modules)\s*=", _read(folder, "mypy.ini", ".mypy.ini")))


def _python_tests(folder: Path, tools: Mapping[str, Any]) -> bool:
    there = (any(folder.glob(pattern)) for pattern in ("test_*.py", "tests/**/test_*.py", "tests/**/*_test.py"))
    return "pytest" in tools or _has(folder, "pytest.ini", "conftest.py") or any(there)


def _pyproject(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read(folder, "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        return {}


# --------------------------------------------------------------------------------------------------------- node

_LOCKS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install --frozen-lockfile"),
    "bun.lock": ("bun", "bun install --frozen-lockfile"),
    "bun.lockb": ("bun", "bun install --frozen-lockfile"),
    "package-lock.json": ("npm", "npm ci"),
    "": ("npm", "npm install"),
}


def _node_tool(folder: Path) -> tuple[str, str]:
    """The package tool whose lock file is there, and how it installs."""
    if _has(folder, "yarn.lock") and _has(folder, ".yarnrc.yml"):
        return "yarn", "yarn install --immutable"
    return next(tool for lock, tool in _LOCKS.items() if not lock or _has(folder, lock))


def _node_setup(folder: Path) -> tuple[str, ...]:
    return (_node_tool(folder)[1],)


def _node_gates(folder: Path) -> dict[str, str]:
    try:
        scripts = json.loads(_read(folder, "package.json"))["scripts"]
        real = {name for name, script in scripts.items() if "no test specified" not in script}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    tool = _node_tool(folder)[0]
    wanted = {"lint": ("lint",), "types": ("typecheck", "type-check", "types"), "test": ("test",)}
    found = {gate: next((name for name in names if name in real), "") for gate, names in wanted.items()}
    return {gate: f"{tool} run {name}" for gate, name in found.items() if name}


# -------------------------------------------------------------------------------------------------------- others


def _rails_setup(folder: Path) -> tuple[str, ...]:
    node = (_node_tool(folder)[1],) if _has(folder, "package.json") else ()
    return ("bundle install", *node, "bin/rails db:prepare")


def _rails_gates(folder: Path) -> dict[str, str]:
    gates = {"lint": "bundle exec rubocop"} if _has(folder, ".rubocop.yml") else {}
    if _has(folder, "spec"):
        return gates | {"test": "bundle exec rspec"}
    return gates | ({"test": "bin/rails test"} if _has(folder, "test") else {})


def _no_setup(_folder: Path) -> tuple[str, ...]:
    return ()


def _generic_gates(folder: Path) -> dict[str, str]:
    if _has(folder, "Cargo.toml"):
        return {"test": "cargo test"}
    if _has(folder, "go.mod"):
        return {"vet": "go vet ./...", "test": "go test ./..."}
    if _has(folder, "mvnw"):
        return {"test": "./mvnw -q test"}
    if _has(folder, "gradlew"):
        return {"test": "./gradlew test"}
    return {}


def _make_gates(folder: Path) -> dict[str, str]:
    """The targets of a Makefile that look like proofs."""
    makefile = _read(folder, "GNUmakefile", "makefile", "Makefile")
    targets = re.findall(r"(?m)^(lint|test|check)\s*:(?!=)", makefile)
    return {target: f"make {target}" for target in dict.fromkeys(targets)}


_Proposal = tuple[
    tuple[str, ...],
    Callable[[Path], tuple[str, ...]],
    Callable[[Path], dict[str, str]],
]
_PROPOSALS: dict[Type, _Proposal] = {
    "rails": (("config/master.key", *_ENVIRONMENTS), _rails_setup, _rails_gates),
    "node": (_ENVIRONMENTS, _node_setup, _node_gates),
    "python": ((".env",), _python_setup, _python_gates),
    "generic": ((".env",), _no_setup, _generic_gates),
}


def _has(folder: Path, *names: str) -> bool:
    return any((folder / name).exists() for name in names)


def _read(folder: Path, *names: str) -> str:
    """The first of these files that is there and of a sane size; else nothing."""
    for path in (folder / name for name in names):
        try:
            if path.is_file() and path.stat().st_size <= _LARGEST:
                return path.read_text(errors="replace")
        except OSError:
            continue
    return ""
