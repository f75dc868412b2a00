"""The configuration as the rest of the fleet asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from codefleet.config import environment, keys, merging, target, trust
from codefleet.config.document import Document, Layer, Place, read
from codefleet.config.files import content
from codefleet.config.values import expanded
from codefleet.core.errors import ConfigError
from codefleet.core.layout import Home
from codefleet.core.settings import BUILT_IN, AgentType, Settings


@dataclass(slots=True)
class _LastGood:
    """The home's file as it was read last, and its last good values."""

    content: bytes | None = None
    document: Document = Document()
    problem: str = ""
    read: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """What holds for a project, with what it asks to be trusted with."""

    settings: Settings
    asked: trust.Asked
    state: trust.State
    warnings: tuple[str, ...] = ()


class Configured:
    """`ports.Configuration` over the home's file, the projects' files, the environment and the flags."""

    def __init__(
        self, home: Home, workspaces: target.Trees, environ: Mapping[str, str], flags: Mapping[str, str] | None = None
    ) -> None:
        """Variables and flags that make no sense are refused here."""
        self._home = home
        self._environ = dict(environ)
        self._flags = environment.given(flags or {})
        self._projects = target.Reader(workspaces)
        self._last = _LastGood()
        self._warnings: tuple[str, ...] = ()
        self._said: dict[tuple[tuple[str, ...], ...], tuple[Layer, tuple[str, ...]]] = {}
        self._kept: tuple[bytes | None, str, Settings] | None = None
        environment.variables(self._environ, {})

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about the home's file and the environment, as last read."""
        return tuple(filter(None, (self._last.problem, *self._warnings)))

    def home(self) -> Settings:
        """As the port says. A file that is wrong at the first reading is a `ConfigError`: nothing good is known."""
        self._refresh()
        instruction = self._instruction()
        if self._kept and self._kept[:2] == (self._last.content, instruction):
            return self._kept[2]
        layer, self._warnings = self._over(self._last.document.entries)
        settings = self._finished(merging.settings(layer), self._home.path, instruction)
        self._kept = (self._last.content, instruction, settings)
        return settings

    async def project(self, repository: Path) -> Settings:
        return (await self.resolve(repository)).settings

    async def resolve(self, repository: Path) -> Resolved:
        """What holds for a project and why it is trusted or not."""
        self._refresh()
        base = self._last.document.entries
        project = await self._projects.read(repository, forced=self._target({}), fallback=self._target(base))
        asked = trust.asked(project)
        state = trust.state(self._home, asked)
        trusted = state in {trust.State.TRUSTED, trust.State.NOTHING}
        layer, warnings = self._over(base, project.open, project.guarded if trusted else {})
        instruction = (project.instruction if trusted else "") or self._instruction()
        settings = merging.settings(layer, partial=not trusted)
        settings = self._finished(settings, project.repository.path, instruction)
        return Resolved(self._placed(settings, project, trusted=trusted), asked, state, warnings)

    def _over(self, *files: Layer) -> tuple[Layer, tuple[str, ...]]:
        """The files with environment and flags above them, and what to warn about."""
        variables, warnings = self._variables(_names(files))
        return merging.merged((*files, variables, self._flags)), warnings

    def _variables(self, names: dict[str, tuple[str, ...]]) -> tuple[Layer, tuple[str, ...]]:
        """What the environment sets for these agent types and gates; it never changes."""
        place = tuple(names.values())
        if place not in self._said:
            self._said[place] = environment.variables(self._environ, names)
        return self._said[place]

    def _target(self, file: Layer) -> str:
        entry = self._over(file)[0].get(("landing", "target"))
        return str(entry.value) if entry else ""

    def _refresh(self) -> None:
        last = self._last
        found = content(self._home.settings)
        if last.read and found == last.content:
            return
        document = read(found or b"", keys.HOME_FILE, Place.HOME)
        problem = self._problem(document)
        if problem and not last.read:
            raise problem
        last.content = found
        last.problem = f"{problem.message}; the settings from before stay" if problem else ""
        last.document = last.document if problem else document
        last.read = True

    def _problem(self, document: Document) -> ConfigError | None:
        try:
            merging.settings(self._over(document.demand().entries)[0])
        except ConfigError as error:
            return error
        return None

    def _instruction(self) -> str:
        template = content(self._home.templates / "INSTRUCTION.md")
        return (template or b"").decode(errors="replace")

    def _finished(self, settings: Settings, folder: Path, instruction: str) -> Settings:
        """Paths become absolute: from the folder of the file, or from the person's own."""
        root = self._absolute(settings.project.worktree_root, folder)
        agents = {name: self._scripted(agent, folder) for name, agent in settings.agents.items()}
        project = replace(settings.project, worktree_root=root)
        return replace(settings, project=project, agents=agents, instruction=instruction)

    def _scripted(self, agent: AgentType, folder: Path) -> AgentType:
        return replace(agent, script=self._absolute(agent.script, folder)) if agent.script else agent

    def _absolute(self, text: str, folder: Path) -> str:
        person = self._environ.get("HOME") or str(Path.home())
        return str(folder / expanded(text, person)) if text else ""

    def _placed(self, settings: Settings, project: target.Project, *, trusted: bool) -> Settings:
        """What the repository itself says where nobody chose."""
        repository = project.repository
        return replace(
            settings,
            git=repository.git,
            trusted=trusted,
            agents_awaiting_trust=() if trusted else _agent_types(project.guarded, settings),
            project=replace(settings.project, name=settings.project.name or repository.path.name),
            workspace=settings.workspace if repository.git else replace(settings.workspace, mode="here"),
            landing=replace(settings.landing, target=settings.landing.target or repository.default_target),
        )


def _agent_types(layer: Layer, settings: Settings) -> tuple[str, ...]:
    """Agent types that a layer would add to the settings."""
    named = dict.fromkeys(path[1] for path in layer if path[0] == "agents")
    return tuple(name for name in named if name not in settings.agents)


def _names(files: Iterable[Layer]) -> dict[str, tuple[str, ...]]:
    """The agent types and gates that any file names."""
    names: dict[str, dict[str, None]] = {"agents": dict.fromkeys(BUILT_IN), "gates": {}}
    for path in (path for layer in files for path in layer):
        if path[0] in names:
            names[path[0]][path[1]] = None
    return {section: tuple(entries) for section, entries in names.items()}
