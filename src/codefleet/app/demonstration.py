"""`demo`: a real repository and a backlog in a folder of their own, for scripted agents to work on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from codefleet.app import beginning, documents, story
from codefleet.app.documents import Document
from codefleet.app.fleet import Fleet
from codefleet.core.drafts import Draft
from codefleet.core.errors import InvalidInput, NotAllowed
from codefleet.core.layout import Home

OURS = ("CODEFLEET_", "FLEET_")
KEPT = frozenset({"CODEFLEET_TEST"})


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demonstration takes place."""

    folder: Path

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")

    @property
    def repository(self) -> Path:
        return self.folder / "textkit"


def stage(folder: Path | None) -> Stage:
    """A new folder; one that is named must be empty or not there."""
    if folder is None:
        return Stage(Path(tempfile.mkdtemp(prefix="codefleet-demo-")).resolve())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is not empty", hint="name a folder that is new: the demonstration fills it")
    folder.mkdir(parents=True, exist_ok=True)
    return Stage(folder.resolve())


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The person's environment without what steers their own fleet."""
    return {name: value for name, value in environ.items() if not name.startswith(OURS) or name in KEPT}


def build(place: Stage) -> None:
    """The repository with its first commit, and the home's settings."""
    from codefleet.workspaces import git

    for name, text in story.files().items():
        path = place.repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    place.home.path.mkdir(mode=0o700)
    place.home.settings.write_text(story.RUNTIME)
    git.check_version()
    git.run(place.repository, "init", "--quiet", "--initial-branch=main")
    git.run(place.repository, "add", "--all")
    identity = ("-c", "user.name=CodeFleet", "-c", "user.email=codefleet@localhost")
    git.run(place.repository, *identity, "commit", "--quiet", "--message=Begin textkit")


async def fill(fleet: Fleet, place: Stage, pace: float) -> list[str]:
    """Trust the repository's gate, for it is ours, and put the wishes on the backlog; their ids."""
    await beginning.init(fleet, place.repository)
    await beginning.give(fleet, await beginning.asked(fleet, place.repository))
    ids: dict[str, str] = {}
    for wish in story.wishes(pace):
        draft = Draft(
            title=wish.title,
            description=wish.description,
            priority=wish.priority,
            labels=tuple(wish.labels),
            file_scope=tuple(wish.scope),
            depends_on=tuple(ids[title] for title in wish.after),
        )
        ids[wish.title] = (await fleet.add(draft, place.repository)).task.id
    return list(ids.values())


async def answer(fleet: Fleet, pace: float) -> None:
    """Be the person who answers, as long as the demonstration goes on."""
    while True:
        position = await fleet.store.position()
        for question in await fleet.questions():
            if question["task_id"]:
                await anyio.sleep(1.5 * pace)
                await _say(fleet, question["task_id"])
        await fleet.store.changed(position, 1.0)


async def _say(fleet: Fleet, task: str) -> None:
    try:
        await fleet.answer(task, story.ANSWER)
    except NotAllowed:  # its agent did not wait so long
        return


async def outcome(fleet: Fleet, ids: list[str]) -> list[Document]:
    """How it went: each task with its runs."""
    found = []
    for key in ids:
        task = await fleet.task(key)
        runs = await fleet.runs(key)
        found.append(documents.task(task) | {"runs": [documents.run(run) for run in runs]})
    return found


async def remove(place: Stage) -> None:
    """Nothing of it stays."""
    import shutil

    await anyio.to_thread.run_sync(shutil.rmtree, place.folder)


def short(path: Path) -> str:
    """A path as a person may type it."""
    import shlex

    return shlex.quote(os.fspath(path))
