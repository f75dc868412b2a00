"""A worktree whose HEAD is not where it should be: a rebase that was cut off, a detached HEAD, another branch."""

from __future__ import annotations

import shutil

from codefleet.core.errors import GitError
from codefleet.ports import WorkspaceOrder
from codefleet.workspaces import commits, git, merging, refs, salvage
from codefleet.workspaces.layout import Tree, read
from codefleet.workspaces.lock import unstuck

#: git's notes of what it is in the middle of, in a worktree's git directory.
_MIDDLE = (
    *("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "MERGE_AUTOSTASH", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("REBASE_HEAD", "BISECT_LOG", "BISECT_START", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
#: Where git keeps what it put aside before a rebase or merge.
_STASHES = ("rebase-merge/autostash", "rebase-apply/autostash", "MERGE_AUTOSTASH")


def onto_branch(tree: Tree, order: WorkspaceOrder) -> None:
    """Before a run: HEAD is on the order's branch again; whatever stood elsewhere is salvaged first."""
    attached = _attached(tree)
    if attached == refs.branch(order.branch):
        return
    if attached:
        raise elsewhere(tree, attached, order.branch)
    restore(tree, order.branch, order.task_id, order.number)


def elsewhere(tree: Tree, attached: str, branch: str) -> GitError:
    """The error that says that somebody switched a worktree to another branch."""
    name = attached.removeprefix("refs/heads/")
    return GitError(
        f"Somebody switched the worktree {tree.path} to the branch {name!r}; its task works on {branch!r}.",
        hint=f"Say `git -C {tree.path} switch {branch}` and try again.",
    )


def restore(tree: Tree, branch: str, task: str, number: int) -> str:
    """Save what stands here as a salvage ref, then put the worktree back on its branch. Returns that ref, if any."""
    saved = salvage.of(tree, task, number, commits.FLEET)
    full, ref = refs.branch(branch), refs.salvage(task, number)
    stashes = [commit for name in _STASHES for commit in read(tree.gitdir / name).split()]
    for commit in stashes:
        salvage.record(tree, ref, commit)
    if not refs.resolve(tree.path, [full]):
        git.run(tree.path, "update-ref", full, "HEAD", "")
    forget(tree)
    unstuck(lambda: git.run(tree.path, "symbolic-ref", "HEAD", full), tree)
    unstuck(lambda: git.run(tree.path, "reset", "-q", "--hard"), tree)
    return ref if saved or stashes else ""


def adopt(tree: Tree, branch: str, head: str) -> bool:
    """Commits made on a detached HEAD, right on top of the branch and on no other: they become the branch's."""
    full = refs.branch(branch)
    at = refs.resolve(tree.path, [full]).get(full, "")
    if not at or not merging.contains(tree.path, head, at) or _is_rebasing(tree):
        return False
    if head != at and salvage.is_held(tree, head):
        return False
    refs.move(tree, {full: (head, at)})
    unstuck(lambda: git.run(tree.path, "symbolic-ref", "HEAD", full), tree)
    return True


def forget(tree: Tree) -> None:
    """Drop git's notes of a merge, rebase, pick or bisect that is in progress."""
    for name in _MIDDLE:
        place = tree.gitdir / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _is_rebasing(tree: Tree) -> bool:
    return (tree.gitdir / "rebase-merge").exists() or (tree.gitdir / "rebase-apply").exists()


def _attached(tree: Tree) -> str:
    """The full name of the branch that HEAD is on; empty when detached."""
    return git.run(tree.path, "symbolic-ref", "-q", "HEAD", ok=(0, 1)).text
