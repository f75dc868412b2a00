"""What a run produced: the rest is committed, the head recorded, the change set told."""

from __future__ import annotations

from dataclasses import replace

from codefleet.core.errors import GitError
from codefleet.ports import ChangeSet, Workspace
from codefleet.workspaces import changes, commits, git, mending, refs, salvage, snapshot
from codefleet.workspaces.changes import Head
from codefleet.workspaces.layout import Tree
from codefleet.workspaces.lock import unstuck

_TRIES = 5


def worktree(workspace: Workspace, tree: Tree, task: str, number: int, title: str, who: commits.Identity) -> ChangeSet:
    """Commit what the agent left on the task's branch. Where a program that it left running commits at the same
    moment, look again."""
    text = commits.message(title, task, number)
    for _ in range(_TRIES):
        seen, notes = _on_branch(workspace, tree, task, number)
        try:
            return replace(_settled(workspace, tree, refs.head(task, number), text, seen, who), notes=notes)
        except GitError:
            if refs.resolve(tree.path, ["HEAD"]) == {"HEAD": seen.status.head}:
                raise
    raise GitError(f"Something commits in {tree.path} all the time.", hint="See which with `fuser`.")


def _settled(
    workspace: Workspace, tree: Tree, ref: str, text: str, seen: snapshot.Seen, who: commits.Identity
) -> ChangeSet:
    head = _committed(tree, seen, text, who)
    moves: dict[str, tuple[str, str | None]] = {ref: (head.commit, None)}
    if head.commit == seen.status.head:
        return _told(tree, workspace.base, head, moves, seen)
    moves[refs.branch(workspace.branch)] = (head.commit, seen.status.head)
    told = _told(tree, workspace.base, head, moves, seen)
    mending.forget(tree)
    return told


def here(workspace: Workspace, tree: Tree, task: str, number: int, title: str, who: commits.Identity) -> ChangeSet:
    """The folder itself belongs to a person: nothing is committed in it, what stands there becomes a commit beside."""
    seen = snapshot.look(tree)
    ref = refs.head(task, number)
    head = snapshot.beside(tree, seen, ref, commits.message(title, task, number), who)
    return _told(tree, workspace.base, Head(head), {ref: (head, None)}, seen)


def _on_branch(workspace: Workspace, tree: Tree, task: str, number: int) -> tuple[snapshot.Seen, tuple[str, ...]]:
    """What stands there, with HEAD on the branch; whatever stood elsewhere is the branch's, or salvaged."""
    seen = snapshot.look(tree)
    if seen.status.branch == workspace.branch:
        return seen, ()
    if seen.status.branch:
        saved = salvage.of(tree, task, number, commits.FLEET)
        error = mending.elsewhere(tree, seen.status.branch, workspace.branch)
        kept = f" What was uncommitted there is kept as {saved.ref}." if saved else ""
        raise GitError(error.message + kept, hint=error.hint)
    if mending.adopt(tree, workspace.branch, seen.status.head):
        return snapshot.look(tree), ()
    ref = mending.restore(tree, workspace.branch, task, number)
    where = f"; what stood there is kept as {ref}" if ref else ""
    return snapshot.look(tree), (f"HEAD was not on {workspace.branch} and was put back{where}.",)


def _committed(tree: Tree, seen: snapshot.Seen, text: str, who: commits.Identity) -> Head:
    """The commit that holds everything to be taken; the head itself when there is nothing."""
    parents = snapshot.parents(tree, seen.status.head)
    if not seen.sorted.take and len(parents) < 2:
        return Head(seen.status.head)
    content = unstuck(lambda: snapshot.stage(tree, seen), tree)
    return Head(commits.commit(tree.path, content, parents, text, who), content, tuple(parents))


def _told(
    tree: Tree, base: str, head: Head, moves: dict[str, tuple[str, str | None]], seen: snapshot.Seen
) -> ChangeSet:
    """Record the head while the change set is counted."""
    record = git.Call(tree.path, refs.MOVE, stdin=refs.moving(moves))
    left_out = seen.sorted.left_out
    return unstuck(lambda: changes.between(tree.path, base, head, record, left_out=left_out), tree, list(moves))
