"""Settings out of a real repository: what git says is asked for once, and again when something moved."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codefleet.config import Configured, trust
from codefleet.core.layout import Home
from codefleet.ports import Repository
from codefleet.workspaces import GitWorkspaces


def gates(command: str) -> str:
    return f'[gates]\ntest = "{command}"\n'


@dataclass
class Counted:
    """Real git, with a note of every question."""

    git: GitWorkspaces
    asked: list[str] = field(default_factory=list)

    async def probe(self, path: Path) -> Repository:
        self.asked.append("probe")
        return await self.git.probe(path)

    async def show(self, repository: Path, commit: str, path: str) -> bytes | None:
        self.asked.append(f"{commit}:{path}")
        return await self.git.show(repository, commit, path)


@dataclass(frozen=True)
class Shop:
    """A repository, and a configuration that lives while the repository changes."""

    path: Path
    home: Home
    trees: Counted
    configured: Configured

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        command = ("git", *identity, *words)
        return subprocess.run(
            command, cwd=self.path, check=True, capture_output=True, text=True, timeout=60
        ).stdout.strip()

    def write(self, text: str) -> None:
        (self.path / "codefleet.toml").write_text(text)

    def commit(self, text: str) -> None:
        self.write(text)
        self.git("add", ".")
        self.git("commit", "-qm", "more")

    async def asked(self, path: Path | None = None) -> str:
        """The gate that the project asks to be trusted with."""
        resolved = await self.configured.resolve(path or self.path)
        return resolved.asked.values.get("gates.test.command", "").strip('"')


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    path, home = tmp_path / "shop", Home(tmp_path / "home")
    path.mkdir()
    trees = Counted(GitWorkspaces(home.path / "quarantine"))
    made = Shop(path, home, trees, Configured(home, trees, {}))
    made.git("init", "-q", "-b", "main")
    return made


async def test_what_is_not_committed_to_the_target_does_not_count(shop: Shop) -> None:
    shop.commit(gates("good"))
    trust.give(shop.home, (await shop.configured.resolve(shop.path)).asked)
    shop.write(gates("evil"))
    held = await shop.configured.project(shop.path)

    assert held.trusted
    assert [gate.command for gate in held.gates] == ["good"]


async def test_a_commit_to_the_target_needs_trust_again(shop: Shop) -> None:
    shop.commit(gates("good"))
    trust.give(shop.home, (await shop.configured.resolve(shop.path)).asked)
    shop.commit(gates("evil"))

    assert not (await shop.configured.project(shop.path)).trusted
    shop.git("reset", "-q", "--hard", "HEAD~1")
    assert (await shop.configured.project(shop.path)).trusted


async def test_another_branch_that_is_checked_out_changes_nothing_that_executes(shop: Shop) -> None:
    shop.commit(gates("good"))
    shop.git("checkout", "-qb", "other")
    shop.commit(gates("evil"))

    assert await shop.asked() == "good"


async def test_git_is_asked_once_while_nothing_moves(shop: Shop) -> None:
    shop.commit(gates("good"))
    seen = [await shop.asked() for _ in range(5)]

    assert set(seen) == {"good"}
    assert shop.trees.asked == [
        "probe",
        "main:codefleet.toml",
        "main:.codefleet/config.toml",
        "main:.codefleet/INSTRUCTION.md",
    ]


async def test_a_branch_that_moves_without_the_checkout_is_seen(shop: Shop) -> None:
    shop.commit(gates("one"))
    shop.git("checkout", "-qb", "other")
    shop.commit(gates("two"))
    seen = [await shop.asked()]
    for moves in (
        ["branch", "-f", "main", "other"],
        ["branch", "-f", "main", "other~1"],
        ["pack-refs", "--all"],
        ["update-ref", "refs/codefleet/lines/main", "other"],
        ["update-ref", "-d", "refs/codefleet/lines/main"],
        ["update-ref", "refs/heads/main", "other"],
    ):
        shop.git(*moves)
        seen.append(await shop.asked())

    assert seen == ["one", "two", "one", "one", "two", "one", "two"]


async def test_the_first_commit_of_a_repository_is_seen(shop: Shop) -> None:
    shop.git("symbolic-ref", "HEAD", "refs/heads/trunk")
    shop.write(gates("written"))
    seen = [await shop.asked()]
    shop.commit(gates("committed"))
    shop.write(gates("written"))
    seen.append(await shop.asked())

    assert seen == ["written", "committed"]


async def test_a_target_that_no_branch_has_leaves_the_checkout(shop: Shop) -> None:
    shop.commit(gates("one") + '[landing]\ntarget = "gone"\n')
    shop.write(gates("two") + '[landing]\ntarget = "gone"\n')

    assert await shop.asked() == "two"
    shop.git("branch", "gone")
    assert await shop.asked() == "one"


async def test_a_linked_worktree_reads_the_same_target(shop: Shop, tmp_path: Path) -> None:
    shop.commit(gates("one"))
    shop.git("worktree", "add", "-q", str(tmp_path / "linked"))
    seen = [await shop.asked(tmp_path / "linked")]
    shop.commit(gates("two"))
    seen.append(await shop.asked(tmp_path / "linked"))

    assert seen == ["one", "two"]


async def test_a_repository_that_keeps_its_refs_otherwise_is_asked_every_time(shop: Shop) -> None:
    shop.commit(gates("one"))
    (shop.path / ".git" / "reftable").mkdir()
    seen = [await shop.asked(), await shop.asked()]

    assert seen == ["one", "one"]
    assert shop.trees.asked.count("main:codefleet.toml") == shop.trees.asked.count("probe") == 2


async def test_a_folder_without_git_has_what_lies_in_it(tmp_path: Path, shop: Shop) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "codefleet.toml").write_text(gates("true"))
    held = await shop.configured.project(folder)

    assert (held.git, held.workspace.mode, held.trusted, held.gates) == (False, "here", False, ())
    assert await shop.asked(folder) == "true"
