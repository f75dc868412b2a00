"""From an order to a workspace that a run may start in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from codefleet.core.errors import GitError, NotFound
from codefleet.ports import Workspace, WorkspaceOrder
from codefleet.workspaces import commits, git, laying, mending, merging, refs, salvage, snapshot, worktrees
from codefleet.workspaces.layout import Tree
from codefleet.workspaces.merging import Joined

#: How many earlier runs of a task are looked at for where its work began.
_EARLIER = 50


@dataclass(frozen=True)
class Known:
    """What the names of an order are at this moment."""

    order: WorkspaceOrder
    found: Mapping[str, str]

    @cached_property
    def branch(self) -> str:
        return self.found.get(refs.branch(self.order.branch), "")

    @cached_property
    def pin(self) -> str:
        return self.found.get(refs.base(self.order.task_id, self.order.number), "")

    @cached_property
    def begun(self) -> str:
        """Where earlier work of the task stands."""
        return self.branch or self.found.get(self.order.resume, "")

    @cached_property
    def target(self) -> str:
        return next((self.found[name] for name in refs.target_names(self.order.target) if name in self.found), "")

    @cached_property
    def earlier(self) -> list[str]:
        """Bases of earlier runs of the task, newest first."""
        return [self.found[pin] for pin in _pins(self.order) if pin in self.found]

    @cached_property
    def upstreams(self) -> dict[str, str]:
        return {task: self.found[head] for task, head in self.order.upstreams.items() if head in self.found}

    @cached_property
    def gone(self) -> dict[str, str]:
        """Upstream heads that are no commits of this repository."""
        return {task: head for task, head in self.order.upstreams.items() if head not in self.found}


def worktree(order: WorkspaceOrder, repository: Tree) -> Workspace:
    """The worktree of the order, whatever an earlier run, a crash or a person left of it."""
    path = order.path.resolve()
    salvage.rescue(repository, path, order.task_id, order.number)
    known = _known(repository, order)
    standing = worktrees.standing(repository, path)
    if standing is None and not known.begun and not known.pin and (new := _laid(repository, known, path)) is not None:
        return new
    if standing is not None and worktrees.is_filled(standing):
        plan = _taken(standing, known)
    else:
        plan = _begun(repository, order)
    tree, fresh = worktrees.ensure(repository, path, order.branch)
    worktrees.fill(tree)
    return _workspace(order, tree, plan, fresh=fresh)


def _laid(repository: Tree, known: Known, path: Path) -> Workspace | None:
    """The usual case, a new branch in a new worktree: refs and files are written at the same time. None when anything
    is in the way; what was begun then is gone on with like after a crash."""
    plan = _planned(repository.path, known)
    tree = laying.lay(repository, path, known.order.branch)
    if tree is None:
        return None
    moving = git.Call(repository.path, refs.MOVE, stdin=refs.moving(_moves(known, plan.base, plan.tip)))
    try:
        git.together(moving, worktrees.filling(tree, plan.tip))
    except GitError:
        return None
    worktrees.mark_filled(tree)
    return _workspace(known.order, tree, plan, fresh=True)


def here(order: WorkspaceOrder, tree: Tree) -> Workspace:
    """The folder itself. What stands uncommitted in it when the run begins is the base, so that it is not the run's."""
    pin = refs.base(order.task_id, order.number)
    base = refs.resolve(tree.path, [pin]).get(pin, "")
    seen = snapshot.look(tree)
    if not base:
        text = commits.message("What stood here before", order.task_id, order.number)
        base = snapshot.beside(tree, seen, pin, text, commits.FLEET)
        refs.move(tree, {pin: (base, "")})
    return Workspace(
        path=tree.path, repository=order.repository, git=True, branch=seen.status.branch, base=base, fresh=False
    )


def _begun(repository: Tree, order: WorkspaceOrder) -> Joined:
    """The branch is there and the base recorded, by us or by somebody who was faster."""
    known = _known(repository, order)
    plan = _planned(repository.path, known)
    try:
        _move(repository, known, plan.base, plan.tip)
    except GitError:
        if _known(repository, order) == known:
            raise
        return _begun(repository, order)
    return plan


def _workspace(order: WorkspaceOrder, tree: Tree, plan: Joined, *, fresh: bool) -> Workspace:
    return Workspace(
        path=tree.path,
        repository=order.repository,
        git=True,
        branch=order.branch,
        base=plan.base,
        conflicts=plan.conflicts,
        fresh=fresh,
    )


def _known(repository: Tree, order: WorkspaceOrder) -> Known:
    names = [refs.branch(order.branch), *refs.target_names(order.target), *_pins(order), *order.upstreams.values()]
    return Known(order, refs.resolve(repository.path, [*names, order.resume]))


def _pins(order: WorkspaceOrder) -> list[str]:
    numbers = range(order.number, max(0, order.number - _EARLIER), -1)
    return [refs.base(order.task_id, number) for number in numbers]


def _planned(cwd: Path, known: Known) -> Joined:
    """Where the work is counted from and where its branch is to stand."""
    if known.pin:
        tip = known.begun or known.pin
        missing = {task: head for task, head in known.upstreams.items() if not merging.contains(cwd, tip, head)}
        return Joined(known.pin, tip, {**known.gone, **missing})
    tip = known.begun or _start(cwd, known)
    joined = merging.with_upstreams(cwd, _began(cwd, known, tip), tip, known.upstreams)
    return Joined(joined.base, joined.tip, {**known.gone, **joined.conflicts})


def _start(cwd: Path, known: Known) -> str:
    """The target's head; where that is a branch without any commit yet, the beginning that we make."""
    if known.target:
        return known.target
    unborn = git.run(cwd, "symbolic-ref", "-q", "HEAD", ok=(0, 1)).text
    if known.order.target and unborn != f"refs/heads/{known.order.target}":
        raise NotFound(
            f"{cwd} has no branch or commit {known.order.target!r}.",
            hint="Set `landing.target` to a branch that exists.",
        )
    return commits.root(cwd)


def _began(cwd: Path, known: Known, tip: str) -> str:
    """Where the work on a branch began: the base of an earlier run, else where it left the target."""
    if not known.begun:
        return tip
    pinned = next((base for base in known.earlier if merging.contains(cwd, tip, base)), "")
    return pinned or (known.target and merging.common(cwd, known.target, tip)) or tip


def _move(repository: Tree, known: Known, base: str, tip: str) -> None:
    """Record the base and put the branch in its place, both or none."""
    if moves := _moves(known, base, tip):
        refs.move(repository, moves)


def _moves(known: Known, base: str, tip: str) -> dict[str, tuple[str, str | None]]:
    moves: dict[str, tuple[str, str | None]] = {}
    if tip != known.branch:
        moves[refs.branch(known.order.branch)] = (tip, known.branch)
    if base != known.pin:
        moves[refs.base(known.order.task_id, known.order.number)] = (base, None)
    return moves


def _taken(tree: Tree, known: Known) -> Joined:
    """Go on in a worktree that is there. What is uncommitted stays; upstream heads come in if nothing stands in
    their way. One that was made for this very run is taken as it is: its agent may be at work in it."""
    if known.pin:
        return _planned(tree.path, known)
    mending.onto_branch(tree, known.order)
    now = Known(known.order, refs.resolve(tree.path, known.found.keys() | {refs.branch(known.order.branch)}))
    plan = _planned(tree.path, now)
    if plan.tip != now.branch and not _forwarded(tree, plan.tip):
        left = {task: head for task, head in now.upstreams.items() if not merging.contains(tree.path, now.branch, head)}
        plan = Joined(_began(tree.path, now, now.branch), now.branch, {**now.gone, **left})
    _move(tree, now, plan.base, now.branch)
    return plan


def _forwarded(tree: Tree, tip: str) -> bool:
    """Move branch and files ahead; git refuses, and changes nothing, when uncommitted work is in the way."""
    try:
        git.run(tree.path, "merge", "-q", "--ff-only", "--no-autostash", tip)
    except GitError:
        return False
    return True
