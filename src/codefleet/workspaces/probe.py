"""What lies at a path."""

from __future__ import annotations

from pathlib import Path

from codefleet.core.errors import NotFound
from codefleet.ports import Repository
from codefleet.workspaces import git, layout
from codefleet.workspaces.layout import Tree

_USUAL = ("main", "master")


def at(path: Path) -> Repository:
    """The repository around a path, or the folder without one."""
    if not path.is_dir():
        raise NotFound(f"There is no folder {path}.", hint="Was the project moved? Name it again by its new path.")
    real = path.resolve()
    tree = layout.tree_around(real)
    return _repository(tree) if tree is not None else Repository(path=real, git=False)


def _repository(tree: Tree) -> Repository:
    form = "--format=%(refname)%00%(symref)"
    head, commit, refs, any_ref = git.together(
        git.Call(tree.path, ("symbolic-ref", "-q", "HEAD"), ok=(0, 1)),
        git.Call(tree.path, ("rev-parse", "-q", "--verify", "HEAD^{commit}"), ok=(0, 1)),
        git.Call(tree.path, ("for-each-ref", form, *(f"refs/heads/{name}" for name in _USUAL), "refs/remotes/*/HEAD")),
        git.Call(tree.path, ("for-each-ref", "--count=1", "refs/heads/", "refs/remotes/")),
    )
    branch = head.text.removeprefix("refs/heads/")
    found = dict(line.split("\0", 1) for line in refs.text.splitlines())
    return Repository(
        path=tree.path,
        git=True,
        branch=branch,
        default_target=_target(found) or branch,
        empty=not commit.text and not any_ref.text,
    )


def _target(found: dict[str, str]) -> str:
    """The remote's HEAD (origin before others), else main, else master."""
    remote = [symref for name, symref in sorted(found.items(), key=_origin_first) if name.endswith("/HEAD") and symref]
    if remote:
        return remote[0].split("/", 3)[3]
    return next((name for name in _USUAL if f"refs/heads/{name}" in found), "")


def _origin_first(item: tuple[str, str]) -> bool:
    return item[0] != "refs/remotes/origin/HEAD"
