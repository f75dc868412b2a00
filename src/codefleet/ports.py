"""What the engine needs from the world. Read this first: every adapter keeps one of these contracts.

Store       versioned aggregates, facts and lists of hints   stores/memory.py, stores/sqlite
Processes   children that outlive us, driven through spools  processes/
Presence    which engines of this host live                  processes/presence.py
Workspaces  the only way to git                              workspaces/
Driver      one type of coding agent                         drivers/
Configuration  what a person has configured                  config/
Clock       time                                             here and in testing/

The contract stands here and is not repeated on the adapters. A contract suite for each is shipped in `codefleet.testing`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import anyio

from codefleet.core.model import Activity, Aggregate, Engine, Fact, FileChange, Instant, Lane, Status
from codefleet.core.progress import Event, Progress
from codefleet.core.settings import AgentType, Settings

A = TypeVar("A", bound=Aggregate)


class Clock(Protocol):
    """Wall time in milliseconds for records, and sleeping."""

    def now(self) -> Instant: ...

    def monotonic(self) -> float:
        """Seconds that never jump; they count through a suspended machine where the system offers that."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> Instant:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Configuration(Protocol):
    """What a person has configured, read when asked for."""

    def home(self) -> Settings:
        """The machine's settings. A file that broke keeps its last good values."""
        ...

    async def project(self, repository: Path) -> Settings:
        """All that holds for one repository or folder. What can execute or loosen comes from the target's tree, else
        from the checkout, and only if this machine's human trusted exactly that (`Settings.trusted`)."""
        ...


# ---------------------------------------------------------------------------------------------------------- store


@dataclass(frozen=True, slots=True)
class Held(Generic[A]):
    """An aggregate as the store held it, with the version that a commit must still find."""

    value: A
    version: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    kind: str
    schema: int
    lag: float = 0.0
    """Seconds that lists may be behind."""
    backup: str = ""
    """The backup that a migration made, if one ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a person may ask a list for. Conditions given must all hold; each kind ignores what it has not."""

    status: tuple[Status, ...] = ()
    project: str = ""
    task: str = ""
    """Runs of this task."""
    prefix: str = ""
    """Ids that begin with this."""
    ready: bool = False
    """Tasks that are pending without a hold."""
    open_question: bool = False
    awaiting: bool = False
    """Tasks that are verified and await somebody."""
    batch: str = ""
    assigned_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    limit: int = 50
    after: str = ""
    """The cursor that the page before gave."""


@dataclass(frozen=True, slots=True)
class Paged(Generic[A]):
    items: tuple[A, ...]
    after: str = ""
    """Cursor of the next page; empty when this was the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    facts: int = 0
    activity: int = 0


class Store(Protocol):
    """Versioned aggregates with one compare-and-set commit. It knows no business verbs.

    `get`, `add` and `commit` are real time and read-your-writes; an acknowledged write is durable. Lists are hints:
    they may lag by `StoreInfo.lag` and are never trusted without `get`. Atomicity is promised for one aggregate with
    its facts, never for two aggregates. Several processes may open the same store. Vendor errors never pass: they
    become `StoreUnavailable` (the outcome is unknown), `Stale`, `Missing`, `Exists`, `SchemaMismatch`, `Corrupt`.
    """

    async def open(self) -> StoreInfo:
        """Make or migrate the schema (with a backup before) and be ready. A newer schema is refused, untouched."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of everything. Closing twice is harmless."""
        ...

    async def get(self, kind: type[A], ids: Sequence[str]) -> Sequence[Held[A]]:
        """Those of the ids that exist, in the order asked for."""
        ...

    async def add(self, new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        """Create only. The same id with the same content again returns what is stored (and adds no fact); with
        other content it is `Exists`."""
        ...

    async def commit(self, held: Held[A], new: A, facts: Sequence[Fact] = ()) -> Held[A]:
        """Replace exactly the version held, with its facts, durably; else `Stale` and nothing is written."""
        ...

    async def ready(self, lanes: Sequence[Lane], limit: int, skip: int = 0) -> Sequence[str]:
        """Pending tasks without hold in any of these lanes, by rank (lowest first). No lanes: every lane."""
        ...

    async def lanes(self) -> Sequence[Lane]:
        """The lanes that have a pending task without hold."""
        ...

    async def waiting_on(self, task: str, after: str = "", limit: int = 500) -> Sequence[str]:
        """Tasks that are blocked by this one or held because of it, by id, after a given id."""
        ...

    async def owned_by(self, engine: str) -> Sequence[str]:
        """Tasks whose live or lingering run belongs to this engine and has not ended."""
        ...

    async def overdue(self, now: Instant, limit: int = 500) -> Sequence[str]:
        """The sweep's work list: held tasks whose `until` has passed, blocked tasks whose dependencies have all
        ended, live questions, and verified tasks nobody awaits."""
        ...

    async def find(self, kind: type[A], where: Filter, page: Page) -> Paged[A]:
        """For people: tasks by rank, all else by id; runs of a task by number."""
        ...

    async def counts(self, project: str = "") -> Mapping[Status, int]:
        """How many tasks are in each state; constant time however long the backlog."""
        ...

    async def beat(self, engine: Engine, now: Instant) -> Instant:
        """Record that the engine lives (create or replace); returns the store's own time."""
        ...

    async def engines(self) -> Sequence[Engine]: ...

    async def retire(self, engine: str) -> None:
        """Forget an engine that has ended and owns nothing."""
        ...

    async def facts(self, after: str = "", limit: int = 1000, *, task: str = "") -> Sequence[Fact]:
        """Facts behind a position in their order; never skips one."""
        ...

    async def position(self) -> str:
        """The position of the newest fact."""
        ...

    async def changed(self, after: str, timeout: float) -> bool:
        """Wait until a fact behind this position may be there (True), or the timeout (False). A hint."""
        ...

    async def relay(self, limit: int = 1000) -> int:
        """Move facts from outboxes into the log, where a store has outboxes; how many were moved."""
        ...

    async def log(self, items: Sequence[Activity]) -> None:
        """Idempotent by (run, n)."""
        ...

    async def activity(self, run: str = "", after: int = -1, limit: int = 1000) -> Sequence[Activity]:
        """A run's telemetry behind n, in order. Without a run: the newest of all runs, oldest first."""
        ...

    async def last_activity(self, run: str) -> int:
        """The highest n logged of a run; -1 if none."""
        ...

    async def similar(self, text: str, project: str, limit: int) -> Sequence[tuple[str, float]]:
        """Tasks with alike words, best first, as (id, score)."""
        ...

    async def purge(self, before: Instant) -> Purged:
        """Drop facts and activity older than this; reading behind them is `PositionGone` from then on."""
        ...

    async def backup(self, to: Path) -> None:
        """A consistent copy while others write."""
        ...


# ------------------------------------------------------------------------------------------------------ processes


class ChildState(StrEnum):
    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A child to be started. `argv` is never seen by a shell."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    stdin: Literal["none", "queue"] | Path = "none"
    """`none`: /dev/null. `queue`: lines from `Child.send`. A path: that file, then end of file."""
    limit: float = 0.0
    """Seconds of wall time, kept by the guard even with nobody else alive; 0: none."""
    grace: float = 5.0
    """Seconds between asking and killing when the limit or the flood ends it."""
    max_output: int = 0
    """Bytes of `out` plus `err`; more is a flood and ends it; 0: no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStatus:
    """What the spool says of a child. Readers judge by this and never take a lock."""

    state: ChildState = ChildState.ABSENT
    pid: int = 0
    guard: int = 0
    code: int | None = None
    """Exit code, -N for signal N; None: unknown, never 0 by guess. Meaningful from `exited` on."""
    ended_by: str = ""
    """`stop`, `limit` or `flood` when we ended it, `machine` when it went down with its machine; empty: it ended by
    itself."""
    exec_error: str = ""
    """Why the program could not be run at all."""
    swept: int = 0
    """Descendants that it left behind and that were ended."""
    left: int = 0
    """Descendants that belong to another user of this machine and could not be ended."""
    started_at: Instant | None = None
    ended_at: Instant | None = None

    @property
    def known(self) -> bool:
        return self.code is not None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output. `offset` is where it begins in the file, `end` where the next begins."""

    offset: int
    end: int
    data: bytes
    cut: bool = False
    """Longer than we keep in memory: `data` is its beginning."""


class Child(Protocol):
    """A child on its spool: started by us or adopted, one path for both."""

    @property
    def spool(self) -> Path: ...

    def status(self) -> ChildStatus: ...

    async def wait(self) -> ChildStatus:
        """Until `done`: it has ended, its whole tree is dead, and that is recorded durably. Replaces a dead guard."""
        ...

    async def stop(self, grace: float) -> ChildStatus:
        """Interrupt, terminate, kill: ends the whole tree within about `grace`, then as `wait`."""
        ...

    async def send(self, line: bytes) -> None:
        """Queue one line for a `queue` stdin; it survives us and the guard. A line that is in the queue already is not
        given twice. Nothing happens when the child has ended or takes none."""
        ...

    def lines(self, offset: int = 0) -> AsyncIterator[Line]:
        """Lines of `out` from an offset, as they come; ends when the child is done and all was read. Bounded memory."""
        ...


class Processes(Protocol):
    """Children that outlive us. The spool directory is the protocol; everybody else only reads it."""

    async def open(self) -> None:
        """Be ready to start children fast."""
        ...

    async def close(self) -> None:
        """Let go; children and their guards go on."""
        ...

    async def start(self, spool: Path, job: Job) -> Child:
        """Start a child on a spool that was never used (its parents are made); returns when it runs, could not be
        run (`exec_error`), or has ended. A used spool is refused: `Failed`. No room: `NoSpace` and nothing ran."""
        ...

    async def adopt(self, spool: Path) -> Child | None:
        """The child of a spool whoever started it; None if nothing ever ran there (such a spool may be started)."""
        ...

    def peek(self, spool: Path) -> ChildStatus:
        """What a spool says, without owning it."""
        ...


class Presence(Protocol):
    """Which engines of this host live: a lock file each, freed by the kernel however its holder dies."""

    def enter(self, engine: str) -> None:
        """Hold the engine's lock until this process ends or `leave` is called."""
        ...

    def leave(self, engine: str) -> None: ...

    def only(self) -> None:
        """Hold the lock of the one plain `start` of this home and host; `AlreadyRunning` if somebody has it."""
        ...

    def alive(self, engine: str) -> bool:
        """Is somebody holding this engine's lock?"""
        ...


# ----------------------------------------------------------------------------------------------------- workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What a path turned out to be."""

    path: Path
    """Top of the working tree, or the folder itself when there is no git."""
    git: bool
    branch: str = ""
    """The branch checked out; empty when detached or without git."""
    default_target: str = ""
    """The remote's HEAD, else main, master, else the branch checked out."""
    empty: bool = False
    """No commit yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOrder:
    repository: Path
    task_id: str
    number: int
    branch: str
    target: str
    path: Path
    """Where the worktree is to be."""
    mode: Literal["worktree", "here"] = "worktree"
    upstreams: Mapping[str, str] = field(default_factory=dict)
    """task → head commit that the base must contain"""
    resume: str = ""
    """Commit of an earlier run of this task to go on from, when its branch is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The directory that a run may touch."""

    path: Path
    repository: Path
    git: bool
    branch: str = ""
    base: str = ""
    """The commit that the run's change set is counted from."""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """Upstream heads that could not be merged into the base: task → commit."""
    fresh: bool = True
    """Made now; False: it was there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """What a run produced, as git shows it."""

    base: str
    head: str
    tree: str
    files: tuple[FileChange, ...] = ()
    commits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Files that were not committed because they are secrets, too big or another repository's."""
    notes: tuple[str, ...] = ()
    """What a person should know: that a rebase was cut off and where its state is kept."""

    @property
    def empty(self) -> bool:
        return not self.files


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    ref: str
    commit: str
    files: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMove:
    """A ref that moved during a run although the run had no business with it."""

    ref: str
    before: str
    after: str


class Workspaces(Protocol):
    """Where runs work. Nothing with unsaved work is ever removed: it becomes a commit on a salvage ref first.

    Without git a workspace is the folder itself and change sets are empty. Errors of git are `GitError` with git's
    words, a full disk is `NoSpace`.
    """

    async def probe(self, path: Path) -> Repository:
        """What lies at a path; `NotFound` if nothing does."""
        ...

    async def prepare(self, order: WorkspaceOrder) -> Workspace:
        """Make the workspace, or take the one that an earlier run or a crashed engine left; idempotent. Its base is
        the target with the upstream heads merged in memory, pinned as `refs/codefleet/base/<task>/<n>`; a later run
        goes on with its task's branch and base, joined with upstream heads that are new. What was prepared for this
        very run is taken as it stands: its agent may be at work in it."""
        ...

    async def copy_files(self, repository: Path, workspace: Path, patterns: Sequence[str]) -> Sequence[str]:
        """Copy credential files that match, mode kept, and keep them out of every commit; which were copied."""
        ...

    def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """Git's variables for a child in the workspace: an identity, no prompt, and a guard (a reference-transaction
        hook that chains the repository's own hooks) that refuses moves of other refs and the stash."""
        ...

    async def refs(self, repository: Path) -> Mapping[str, str]:
        """All refs, for the audit."""
        ...

    async def audit(self, repository: Path, before: Mapping[str, str], own: Sequence[str]) -> Sequence[ForeignMove]:
        """Refs that moved since `before` other than `own` (globs) and the fleet's own."""
        ...

    async def settle(self, workspace: Workspace, *, task_id: str, number: int, title: str) -> ChangeSet:
        """Commit what the agent left uncommitted (secrets and bulk excluded), record the head as
        `refs/codefleet/heads/<task>/<n>`, and say what the run produced. Idempotent. Nothing is committed in a folder
        that is worked on in place (mode `here`): there the head is a commit beside its branch. `GitError` when a
        person switched the worktree to another branch or removed it."""
        ...

    async def salvage(self, workspace: Workspace, *, task_id: str, number: int) -> Salvaged | None:
        """Everything unsaved as a commit on `refs/codefleet/salvage/<task>/<n>` without touching the workspace; None
        when all is saved already or the workspace is gone."""
        ...

    async def proof(self, repository: Path, path: Path, commit: str, caches: Sequence[str]) -> Path:
        """A worktree at `path` that holds exactly this commit's tree, cleaned but for caches."""
        ...

    async def release(self, workspace: Workspace, *, task_id: str) -> str:
        """Remove the worktree when all in it is saved; returns why it was kept, or an empty string. The branch stays;
        what no commit may hold moves to the quarantine."""
        ...

    async def diff(self, repository: Path, base: str, head: str) -> str: ...

    async def show(self, repository: Path, commit: str, path: str) -> bytes | None:
        """A file as a commit (or branch) has it; None when it is not there."""
        ...

    async def contains(self, repository: Path, commit: str, ancestor: str) -> bool: ...

    async def exclude(self, repository: Path, patterns: Sequence[str]) -> None:
        """Add lines to the repository's own exclude file, once."""
        ...


# -------------------------------------------------------------------------------------------------------- drivers


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a driver needs to start or resume its agent."""

    task_id: str
    run: str
    workspace: Path
    task_dir: Path
    artifacts: Path
    prompt_file: Path
    prompt: str
    model: str = ""
    session_id: str = ""
    """Chosen by us for a new session; the one to go on with when `resume`."""
    resume: bool = False
    round: int = 1
    """1, 2, …: the how-manieth child of this run."""
    gates: tuple[tuple[str, ...] | str, ...] = ()
    """The gate commands, so that the agent may be allowed to run them."""
    description: str = ""
    """The task's own description (the scripted agent reads its steps there)."""
    message_id: str = ""
    """Uuid for the first message; the same for the same round, so that it is never taken twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: Literal["none", "queue", "prompt"] = "none"
    messages: tuple[bytes, ...] = ()
    """Lines to queue at once, for `queue`."""
    uuids: tuple[str, ...] = ()
    """The messages whose taking the agent will acknowledge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    resume: bool = False
    """A next child can go on with the session."""
    live: bool = False
    """The process stays for further messages after a turn; it must be ended."""
    cost: bool = False
    sessions: bool = False
    """The session id is ours to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What can be known of an agent without spending anything."""

    installed: bool
    version: str = ""
    logged_in: bool | None = None
    """None: can not be known."""
    detail: str = ""


class EndingKind(StrEnum):
    OK = "ok"
    OWN_ERROR = "own_error"
    DRIVER_ERROR = "driver_error"
    ACCOUNT_ERROR = "account_error"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    kind: EndingKind
    reason: str = ""


class Driver(Protocol):
    """One type of coding agent. Decides on structured fields and exit status, never on words in the output."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def check(self, env: Mapping[str, str]) -> Check:
        """Installed, version, logged in; no tokens, no network, at most 5 s."""
        ...

    def command(self, order: Order) -> Command:
        """How to start, or to resume, the agent for this order."""
        ...

    def parse(self, line: bytes) -> Sequence[Event]:
        """What a line of output means. Pure and total: unknown kinds and garbage give an empty sequence or a `log`."""
        ...

    def encode(self, text: str, uuid: str) -> bytes:
        """A further user message for a live session, as one line."""
        ...

    def farewell(self) -> bytes:
        """The line that ends a live session; empty when ending is by closing or by exit."""
        ...

    def conclude(self, progress: Progress, status: ChildStatus, stderr: str) -> Ending:
        """The verdict on a turn or child that has ended; `stderr` is for the reason's words only."""
        ...


class Drivers(Protocol):
    """The drivers that are installed."""

    def driver(self, name: str, agent: AgentType) -> Driver:
        """The driver of an agent type as configured; `ConfigError` when there is none of that name."""
        ...
