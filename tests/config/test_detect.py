"""What is proposed for a folder, from what lies in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codefleet.config.detect import TYPES, Detected, detect
from codefleet.config.document import Place, read
from codefleet.config.initial import codefleet_toml, runtime_toml
from codefleet.config.merging import settings
from codefleet.core.settings import BUILT_IN, Gate, Settings

Files = dict[str, str]


def _folder(path: Path, files: Files) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


SCRIPTS = '{"scripts": {"test": "jest", "lint": "eslint .", "typecheck": "tsc", "start": "node ."}}'
NO_TEST = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'

PROJECTS: dict[str, tuple[Files, str, tuple[str, ...], dict[str, str]]] = {
    "python with uv": (
        {"pyproject.toml": "[tool.ruff]\n[tool.mypy]\nfiles = ['src']\n[tool.pytest.ini_options]\n", "uv.lock": ""},
        "python",
        ("uv sync",),
        {"lint": "uv run ruff check .", "types": "uv run mypy", "test": "uv run pytest -q"},
    ),
    "python with requirements": (
        {"requirements.txt": "flask", "tests/unit/test_a.py": "", "mypy.ini": "[mypy]\n"},
        "python",
        ("pip install -r requirements.txt",),
        {"types": "mypy .", "test": "pytest -q"},
    ),
    "python with poetry": (
        {"pyproject.toml": "[tool.poetry]\n", "poetry.lock": "", "test_a.py": "", "ruff.toml": ""},
        "python",
        ("poetry install",),
        {"lint": "poetry run ruff check .", "test": "poetry run pytest -q"},
    ),
    "python without anything to prove it": ({"setup.py": ""}, "python", (), {}),
    "python with a broken pyproject": (
        {"pyproject.toml": "[tool", "conftest.py": ""},
        "python",
        (),
        {"test": "pytest -q"},
    ),
    "python that is tested by make": (
        {"setup.py": "", "Makefile": "test: x\n\ttrue\n"},
        "python",
        (),
        {"test": "make test"},
    ),
    "node with npm": (
        {"package.json": SCRIPTS, "package-lock.json": "{}"},
        "node",
        ("npm ci",),
        {"lint": "npm run lint", "types": "npm run typecheck", "test": "npm run test"},
    ),
    "node without a lock": ({"package.json": NO_TEST}, "node", ("npm install",), {}),
    "node with pnpm": (
        {"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""},
        "node",
        ("pnpm install --frozen-lockfile",),
        {"test": "pnpm run test"},
    ),
    "node with old yarn": ({"package.json": "{}", "yarn.lock": ""}, "node", ("yarn install --frozen-lockfile",), {}),
    "node with new yarn": (
        {"package.json": "{}", "yarn.lock": "", ".yarnrc.yml": ""},
        "node",
        ("yarn install --immutable",),
        {},
    ),
    "node with bun": ({"package.json": "{}", "bun.lock": ""}, "node", ("bun install --frozen-lockfile",), {}),
    "node with a broken package": ({"package.json": '{"scripts": [1]}'}, "node", ("npm install",), {}),
    "rails": (
        {
            "Gemfile": "gem 'rails', '~> 8'\n",
            "spec/a_spec.rb": "",
            ".rubocop.yml": "",
            "package.json": "{}",
            "yarn.lock": "",
        },
        "rails",
        ("bundle install", "yarn install --frozen-lockfile", "bin/rails db:prepare"),
        {"lint": "bundle exec rubocop", "test": "bundle exec rspec"},
    ),
    "rails with its own tests": (
        {"config/application.rb": "", "test/a_test.rb": ""},
        "rails",
        ("bundle install", "bin/rails db:prepare"),
        {"test": "bin/rails test"},
    ),
    "go": ({"go.mod": ""}, "generic", (), {"vet": "go vet ./...", "test": "go test ./..."}),
    "rust": ({"Cargo.toml": ""}, "generic", (), {"test": "cargo test"}),
    "java with gradle": ({"gradlew": ""}, "generic", (), {"test": "./gradlew test"}),
    "java with maven": ({"mvnw": ""}, "generic", (), {"test": "./mvnw -q test"}),
    "make": (
        {"Makefile": "TEST := x\ntest:=1\nlint check::\nall: test\ntest : all\n\tfalse\ncheck:\n"},
        "generic",
        (),
        {"test": "make test", "check": "make check"},
    ),
    "nothing": ({"README": "hello"}, "generic", (), {}),
}


@pytest.mark.parametrize(("files", "type_", "setup", "gates"), PROJECTS.values(), ids=PROJECTS)
def test_a_project_is_known_by_what_lies_in_it(
    tmp_path: Path, files: Files, type_: str, setup: tuple[str, ...], gates: dict[str, str]
) -> None:
    found = detect(_folder(tmp_path, files))

    assert (found.type, found.setup, dict(found.gates)) == (type_, setup, gates)


@pytest.mark.parametrize(("files", "_type", "setup", "gates"), PROJECTS.values(), ids=PROJECTS)
def test_what_is_proposed_is_a_file_that_loads(
    tmp_path: Path, files: Files, _type: str, setup: tuple[str, ...], gates: dict[str, str]
) -> None:
    text = codefleet_toml('the "shop"', "main", detect(_folder(tmp_path, files)))
    held = settings(read(text.encode(), "codefleet.toml", Place.PROJECT).demand().entries)

    assert held.project.name == 'the "shop"'
    assert held.setup.commands == setup
    assert held.gates == tuple(Gate(name=name, command=command) for name, command in gates.items())
    assert held.landing.target == "main"


def test_credential_files_that_are_there_are_proposed_and_the_others_are_mentioned(tmp_path: Path) -> None:
    found = detect(_folder(tmp_path, {"package.json": "{}", ".env.local": ""}))

    assert (found.credential_files, found.possible_files) == ((".env.local",), (".env",))
    assert 'credential_files = [".env.local"]  # also possible: .env\n' in codefleet_toml("x", "main", found)


def test_a_rails_project_has_its_key_and_its_environments(tmp_path: Path) -> None:
    found = detect(_folder(tmp_path, {"config/master.key": "", ".env": "", ".env.local": ""}), "rails")

    assert found.credential_files == ("config/master.key", ".env", ".env.local")


@pytest.mark.parametrize("type_", TYPES)
def test_a_type_that_was_given_is_believed(tmp_path: Path, type_: str) -> None:
    chosen = next(one for one in TYPES if one == type_)

    assert detect(tmp_path, chosen).type == type_


def test_minimal_proposes_nothing(tmp_path: Path) -> None:
    assert detect(_folder(tmp_path, {"go.mod": "", ".env": ""}), "minimal") == Detected(type="minimal")


def test_without_a_target_none_is_written(tmp_path: Path) -> None:
    text = codefleet_toml("x", "", detect(tmp_path))

    assert "landing" not in text
    assert '# test = "make test"' in text


def test_nothing_of_a_project_is_executed(tmp_path: Path) -> None:
    evil = f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()"
    files = {
        "setup.py": evil,
        "conftest.py": evil,
        "gradlew": "#!/bin/sh\ntouch ran\n",
        "Makefile": "x := $(shell touch ran)\ntest:\n",
    }
    _folder(tmp_path, files)
    for name in files:
        (tmp_path / name).chmod(0o755)
    detect(tmp_path)

    assert not (tmp_path / "ran").exists()


def test_odd_files_do_not_stop_detection(tmp_path: Path) -> None:
    (tmp_path / "package.json").mkdir()
    (tmp_path / "Gemfile").symlink_to(tmp_path / "Gemfile")
    (tmp_path / "Makefile").write_bytes(b"\xff\xfe\ntest:\n")

    assert dict(detect(tmp_path).gates) == {"test": "make test"}


def test_the_homes_file_says_nothing_until_a_person_does() -> None:
    assert read(runtime_toml().encode(), "runtime.toml", Place.HOME).demand().entries == {}


def test_the_homes_file_without_its_comments_says_the_defaults() -> None:
    lines = (line.removeprefix("# ") for line in runtime_toml().splitlines())
    text = "\n".join(line for line in lines if " = " in line or line.startswith("["))
    held = settings(read(text.encode(), "runtime.toml", Place.HOME).demand().entries)

    assert held.agents["my-agent"].command[0] == "my-agent"
    assert held == Settings(agents=held.agents, origin=held.origin)
    assert {name: held.agents[name] for name in BUILT_IN} == BUILT_IN
