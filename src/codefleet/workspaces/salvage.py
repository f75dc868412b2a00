"""Everything unsaved as a commit on a salvage ref; the working tree stays as it is."""

from __future__ import annotations

from pathlib import Path

from codefleet.ports import Salvaged
from codefleet.workspaces import commits, git, layout, merging, refs, snapshot
from codefleet.workspaces.layout import Tree


def of(tree: Tree, task: str, number: int, who: commits.Identity) -> Salvaged | None:
    """What is uncommitted, and commits that no ref holds."""
    seen = snapshot.look(tree)
    status = seen.status
    if not seen.sorted.take and (status.branch or not status.head or is_held(tree, status.head)):
        return None
    ref = refs.salvage(task, number)
    made = _commit(tree, seen, ref, commits.message("Work that was not saved", task, number), who)
    files, left_out = (tuple(map(git.shown, names)) for names in (seen.files, seen.sorted.left_out))
    return Salvaged(ref=ref, commit=made, files=files, left_out=left_out)


def is_held(tree: Tree, commit: str) -> bool:
    """Does any branch, tag or ref of the fleet lead to a commit?"""
    found = git.run(tree.path, "for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)")
    return bool(found.text)


def is_kept(tree: Tree, content: str, task: str) -> bool:
    """Does a salvage ref of the task hold exactly this tree?"""
    pattern = f"{refs.FLEET}salvage/{refs.checked(task, 'task')}/"
    found = git.run(tree.path, "for-each-ref", "--format=%(tree)", pattern)
    return content in found.text.split()


def rescue(repository: Tree, path: Path, task: str, number: int) -> None:
    """Save what is left of a worktree whose folder somebody removed: commits off any branch and what was staged."""
    if (path / ".git").exists():
        return
    for entry in layout.registered(repository.common, path):
        if (entry / "index").exists():
            _rescue(Tree(repository.path, entry, repository.common), task, number)


def _rescue(lost: Tree, task: str, number: int) -> None:
    env = {"GIT_DIR": str(lost.gitdir)}
    attached = git.run(lost.common, "symbolic-ref", "-q", "HEAD", env=env, ok=(0, 1)).text
    head = git.run(lost.common, "rev-parse", "-q", "--verify", "HEAD", env=env, ok=(0, 1)).text
    staged = git.run(lost.common, "write-tree", env=env, ok=(0, 128))
    if staged.code or not head:
        return
    committed = git.run(lost.common, "rev-parse", f"{head}^{{tree}}").text
    if staged.text == committed and (attached or is_held(lost, head)):
        return
    text = commits.message("What was staged in a worktree that was removed", task, number)
    made = head if staged.text == committed else commits.commit(lost.common, staged.text, (head,), text, commits.FLEET)
    record(lost, refs.salvage(task, number), made)


def _commit(tree: Tree, seen: snapshot.Seen, ref: str, text: str, who: commits.Identity) -> str:
    """The snapshot's commit; the one that the ref has, when nothing changed since."""
    content = snapshot.written(tree, seen)
    before = refs.resolve(tree.path, [ref]).get(ref, "")
    parents = snapshot.parents(tree, seen.status.head)
    if before and snapshot.is_same(tree, before, content, parents):
        return before
    if before and not any(merging.contains(tree.path, parent, before) for parent in parents):
        parents.append(before)
    made = commits.commit(tree.path, content, parents, text, who)
    refs.move(tree, {ref: (made, before)})
    return made


def record(tree: Tree, ref: str, commit: str) -> None:
    """Point the ref to a commit; what it pointed to before stays reachable through it."""
    before = refs.resolve(tree.common, [ref]).get(ref, "")
    if before and not merging.contains(tree.common, commit, before):
        content = git.run(tree.common, "rev-parse", f"{commit}^{{tree}}").text
        commit = commits.commit(tree.common, content, (commit, before), "Saved twice\n", commits.FLEET)
    refs.move(tree, {ref: (commit, before)})
