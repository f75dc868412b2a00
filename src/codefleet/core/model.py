"""The nouns of the fleet. Frozen values; every change is a new value made by a transition."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

#: Milliseconds since 1970, UTC. Time is always an argument.
Instant = int

PRIORITY_STEP: int = 7 * 24 * 3600 * 1000
"""One step of priority weighs as much as seven days of waiting."""


class Status(StrEnum):
    """Where a task stands. Whether its run has ended is another fact (`Run.ended_at`)."""

    BLOCKED = "blocked"
    PENDING = "pending"
    ASSIGNED = "assigned"
    IN_PROGRESS = "in_progress"
    WAITING = "waiting"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    LANDING = "landing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Complexity(StrEnum):
    TRIVIAL = "trivial"
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    XL = "xl"


class Expects(StrEnum):
    """What a finished run must bring: commits, or an answer in words."""

    CHANGE = "change"
    RESULT = "result"


class RunStatus(StrEnum):
    PREPARING = "preparing"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a run ended."""

    REPORTED = "reported"
    NO_CHANGE = "no_change"
    QUESTION = "question"
    OWN_ERROR = "own_error"
    DRIVER_ERROR = "driver_error"
    ACCOUNT_ERROR = "account_error"
    GATES_RED = "gates_red"
    TIMEOUT = "timeout"
    CONTEXT = "context"
    BUDGET = "budget"
    STALLED = "stalled"
    FLOOD = "flood"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    TAKEN_OVER = "taken_over"
    FENCED = "fenced"


class AgentStatus(StrEnum):
    IDLE = "idle"
    WORKING = "working"
    PAUSED = "paused"
    OFFLINE = "offline"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a run."""

    input: int = 0
    output: int = 0
    cached: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cached


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    path: str
    change_type: str
    """created, modified or deleted"""
    lines_added: int = 0
    lines_removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """A check that the agent says it ran; advisory."""

    command: str
    status: str
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an agent says it did: data, not proof."""

    status: str
    summary: str
    files_changed: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    tests: tuple[TestReport, ...] = ()
    next_steps: tuple[str, ...] = ()
    question: str = ""
    salvaged: bool = False
    """Rebuilt from the agent's last words because it left no valid result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a pending task may not start, and what lifts it."""

    kind: str
    """time, scope, limit, conflict, person, upstream, trust, setup or gates"""
    text: str
    until: Instant | None = None
    on: str | None = None
    """The id of what it waits for: a task, a pause, a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An agent, or the fleet itself, waits for a person."""

    id: str
    text: str
    asked_at: Instant
    options: tuple[str, ...] = ()
    live: bool = False
    """The asking process is alive and waits for the answer."""
    run: str | None = None
    request: int = 0
    """Number of the agent's request that it came by."""
    answer: str | None = None
    answered_by: str | None = None
    answered_at: Instant | None = None
    moot: bool = False

    @property
    def open(self) -> bool:
        return self.answer is None and not self.moot


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate said about one tree."""

    name: str
    exit_code: int | None
    flaky: bool = False
    duration_ms: int = 0
    log_sha256: str = ""

    @property
    def green(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """On what a task was called done."""

    commit: str | None = None
    tree: str | None = None
    base: str | None = None
    gates: tuple[GateResult, ...] = ()
    merge_commit: str | None = None
    reviewer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt at a task. The live one is a part of its task; closed ones are records of their own."""

    id: str
    """`<task>.<number>`"""
    task_id: str
    project: str
    number: int
    epoch: int
    engine: str
    host: str = ""
    agent_id: str
    """The member of the fleet."""
    agent: str
    """The agent type."""
    model: str = ""
    status: RunStatus = RunStatus.PREPARING
    branch: str = ""
    workspace: str = ""
    base: str = ""
    head: str = ""
    tree: str = ""
    """The tree of its head, which is what gates prove."""
    session_id: str = ""
    created_at: Instant = 0
    started_at: Instant | None = None
    ended_at: Instant | None = None
    """When its process tree was confirmed dead; until then it owns its workspace."""
    exit_code: int | None = None
    exit_known: bool = False
    usage: Usage = Usage()
    cost_usd: float | None = None
    files: tuple[FileChange, ...] = ()
    result: Result | None = None
    outcome: Outcome | None = None
    reason: str = ""
    round: int = 0
    """How often red gates were sent back within this run."""
    stale: bool = False
    """The text or an upstream changed under it: verify again before it is believed."""
    token: str = ""
    """Digest of the token that its agent speaks with."""
    revision: int = 1
    """Of the task's text, as it was when this run was assigned."""

    @property
    def ended(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A unit of work in the backlog, with its live run and its question."""

    id: str
    project: str
    title: str
    status: Status
    created_at: Instant
    updated_at: Instant
    description: str = ""
    priority: int = 3
    depends_on: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    file_scope: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    complexity: Complexity = Complexity.MEDIUM
    agent: str = ""
    """The agent type that a person asked for; empty: any."""
    model: str = ""
    cwd: str = ""
    target: str = ""
    expects: Expects = Expects.CHANGE
    origin: str = "person"
    batch: str | None = None
    timeout_seconds: int = 0
    rank: int = 0
    next: bool = False
    """Before everything else (`add --next`)."""
    epoch: int = 0
    """The fence: one more at every assign."""
    assigned_to: str | None = None
    branch_name: str = ""
    runs: int = 0
    """How many runs it had: the number of the last."""
    run: Run | None = None
    lingering: tuple[Run, ...] = ()
    """Earlier runs whose process tree is not confirmed dead; each still owns its workspace."""
    attempts: int = 0
    rounds: int = 0
    bounces: int = 0
    interruptions: int = 0
    hold: Hold | None = None
    awaiting: str | None = None
    outcome: str | None = None
    proven: bool | None = None
    question: Question | None = None
    questions: int = 0
    notes: tuple[str, ...] = ()
    """What the next run must be told: answers, review comments, gate output."""
    evidence: Evidence | None = None
    result_summary: str = ""
    error_message: str = ""
    pr_url: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = None
    assigned_at: Instant | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    revision: int = 1
    landing_intent: str | None = None
    if_failed: str = "hold"
    """What a failed dependency does: hold, run or skip."""

    @property
    def lane(self) -> Lane:
        return Lane(self.project, self.agent)

    @property
    def open_run(self) -> Run | None:
        """The run that an engine must look after: begun, and its tree not confirmed dead."""
        return self.run if self.run is not None and not self.run.ended else None


@dataclass(frozen=True, slots=True)
class Lane:
    """The queue that a pending task waits in: its project and the agent type it asks for (empty: any)."""

    project: str
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A repository or folder that the fleet works on, wherever it lies on each host."""

    id: str
    name: str
    paths: dict[str, str] = field(default_factory=dict)
    """host → absolute path"""
    created_at: Instant = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A member of the fleet: a slot of an engine."""

    id: str
    type: str
    engine: str
    host: str = ""
    kind: str = "slot"
    status: AgentStatus = AgentStatus.IDLE
    current_task_id: str | None = None
    worktree_path: str | None = None
    session_id: str | None = None
    capabilities: tuple[str, ...] = ()
    last_heartbeat: Instant = 0
    tasks_completed: int = 0
    tasks_failed: int = 0
    total_tokens_used: int = 0
    total_cost_usd: float = 0.0
    created_at: Instant = 0
    updated_at: Instant = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The process that runs rules and slots; its beat is the lease on its tasks."""

    id: str
    host: str
    pid: int
    version: str
    slots: int
    name: str = ""
    busy: int = 0
    since: Instant = 0
    beat_at: Instant = 0
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A stop of new starts for what its selector names. Two strikes arm it; a person's word lifts it."""

    id: str
    """The selector: `fleet`, `agent:TYPE`, `account:NAME`, `project:ID`, `task:ID`."""
    active: bool = False
    reason: str = ""
    until: Instant | None = None
    strikes: int = 0
    last_failure: str = ""
    failures: int = 0
    """Failures to start in a row, whatever their words."""
    question: Question | None = None
    questions: int = 0
    created_at: Instant = 0
    updated_at: Instant = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The remembered result of all gates on one tree in one environment."""

    id: str
    """Digest of tree, gates and environment."""
    project: str
    tree: str
    gates: tuple[GateResult, ...]
    made_at: Instant

    @property
    def green(self) -> bool:
        return all(gate.green for gate in self.gates)


Aggregate = Task | Run | Project | Agent | Engine | Pause | Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """An immutable statement about a change of state. The store gives it its position."""

    kind: str
    at: Instant
    by: str
    project: str | None = None
    task_id: str | None = None
    run: str | None = None
    epoch: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    position: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Telemetry of a run: at least once, in order within its run, idempotent by (run, n)."""

    run: str
    n: int
    at: Instant
    kind: str
    data: dict[str, Any] = field(default_factory=dict)


FACT_KINDS = frozenset(
    """
    task_created task_edited task_blocked task_unblocked task_held task_released task_assigned task_declined
    task_started task_waiting task_answered run_reported run_ended report_kept work_salvaged gates_failed
    task_verified task_requeued task_completed task_failed task_cancelled task_reopened context_pressure
    stale_agent_recovery project_added scope_granted scope_widened scope_released paused resumed conflict_detected
    conflict_resolved landing_queued landing_tested line_moved published publish_held queue_held queue_released
    agent_started agent_stopped agent_paused agent_resumed error
    """.split()
)

ACTIVITY_KINDS = frozenset(
    """
    session_started message tool_call file_changed usage retry permission_denied gate_output setup_output log
    session_ended
    """.split()
)
