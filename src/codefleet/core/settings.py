"""What a person may configure, as frozen values. `config` fills them from files and the environment.

The field path is the key (`limits.attempts`), the field's default is the key's. `config.keys` says all else about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DEFAULT_TOOLS = ("Read", "Glob", "Grep", "Bash(git add *)", "Bash(git commit *)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """[agent]: which agent type runs a task that names none."""

    default: str = "claude"
    model: str = ""
    claude_flags: str = ""
    """Already part of `flags` and `permissions` of every agent type with Claude's driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentType:
    """[agents.NAME]: one type of coding agent."""

    driver: str
    """A driver's name, `command`, or `module:Class`."""
    model: str = ""
    flags: tuple[str, ...] = ()
    permissions: Literal["safe", "bypass"] = "safe"
    allowed_tools: tuple[str, ...] = DEFAULT_TOOLS
    max_turns: int = 0
    account: str = ""
    keep: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    stdin: Literal["none", "prompt"] = "none"
    timeout_seconds: int = 0
    script: str = ""


BUILT_IN: Mapping[str, AgentType] = {
    "claude": AgentType(driver="claude", keep=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")),
    "scripted": AgentType(driver="scripted"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    attempts: int = 3
    rounds: int = 3
    timeout_seconds: int = 0
    question_live_minutes: int = 10
    max_output: int = 1 << 30
    """Bytes a run may print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    credential_files: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    quick: bool = False
    timeout_seconds: int = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    name: str
    command: str | tuple[str, ...]
    """A string is run by `sh -c`, a tuple as it is."""
    timeout_seconds: int = 900
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    flaky_reruns: int = 1
    parallel: int = 1
    caches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    target: str = ""
    policy: str = ""
    """`none` or `review`; empty: none with gates and for a folder without git, review without gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    name: str = ""
    worktree_root: str = ""
    branch: str = "{agent}/{task}/{id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings:
    mode: Literal["worktree", "here"] = "worktree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that holds for one project on this machine (or for the home alone)."""

    store: str = "sqlite"
    max_concurrent: int = 3
    max_agents: int = 50
    stale_after: float = 120
    heartbeat_interval: float = 30
    poll_interval: float = 5
    shutdown_grace: float = 30
    log_level: str = "INFO"
    log_status_interval: float = 30
    keep_spools_days: int = 14
    min_free_disk: int = 512 << 20
    agent: Agent = Agent()
    agents: Mapping[str, AgentType] = field(default_factory=lambda: dict(BUILT_IN))
    limits: Limits = Limits()
    project: ProjectSettings = ProjectSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    setup: Setup = Setup()
    gates: tuple[Gate, ...] = ()
    proof: Proof = Proof()
    landing: Landing = Landing()
    git: bool = True
    """The project is a repository; a plain folder is worked on in place and has no branches."""
    instruction: str = ""
    """The person's own `INSTRUCTION.md`: the project's, else the home's. Empty: the one that is shipped."""
    trusted: bool = True
    """All keys that can execute or loosen are the ones that the human trusted."""
    agents_awaiting_trust: tuple[str, ...] = ()
    """Agent types of the project that will be there once it is trusted."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """key → where its value comes from: `codefleet.toml:12`, `CODEFLEET_AGENT`, `--agent`; absent: default"""

    @property
    def policy(self) -> str:
        """What happens to work that is proven, where nobody chose."""
        return self.landing.policy or ("none" if self.gates or not self.git else "review")

    def model_of(self, agent: str) -> str:
        """The model that an agent type is asked for when its task names none; empty: the agent's own."""
        own = self.agents[agent].model if agent in self.agents else ""
        return own or (self.agent.model if agent == self.agent.default else "")
