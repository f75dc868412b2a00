"""Looking into commits."""

from __future__ import annotations

import os
from pathlib import Path

from codefleet.workspaces import git, refs


def diff(cwd: Path, base: str, head: str) -> str:
    """A patch for people; binary files are only named."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--src-prefix=a/", "--dst-prefix=b/")
    answer = git.run(cwd, "diff", *options, "--end-of-options", base, head, "--")
    return answer.out.decode(errors="replace")


def show(cwd: Path, commit: str, path: str) -> bytes | None:
    """A file of a commit, or of what a target's name stands for."""
    if not commit or not path or set(commit + path) & {"\0", "\n"}:
        return None
    names = [f"{name}:{path}" for name in refs.target_names(commit)]
    listed = git.run(cwd, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=os.fsencode("\n".join(names)))
    blobs = [line.split()[0] for line in listed.text.split("\n") if line.endswith(" blob")]
    return git.run(cwd, "cat-file", "blob", blobs[0]).out if blobs else None
