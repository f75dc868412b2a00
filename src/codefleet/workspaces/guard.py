"""The hook that keeps an agent's git to its own branch, and git's variables for a child."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from codefleet.workspaces import git, layout, space
from codefleet.workspaces.customs import Customs
from codefleet.workspaces.layout import Tree

#: Every hook that git looks for in `core.hooksPath`; each goes on to the repository's own of that name.
NAMES = tuple(
    """
    applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit
    pre-rebase post-checkout post-merge pre-push post-rewrite pre-receive update proc-receive post-receive post-update
    push-to-checkout pre-auto-gc sendemail-validate reference-transaction
    """.split()
)

#: In a repository that is not the guarded one (a test suite makes such) nothing is refused and its own hooks run.
SCRIPT = """\
#!/bin/sh
# Refuses moves of refs that are not this run's own, then runs the repository's own hook of the same name.
name=${0##*/}
here=$(cd -P -- "${GIT_DIR:-.git}" 2>/dev/null && pwd -P)
case $here in
"$CODEFLEET_GIT_COMMON" | "$CODEFLEET_GIT_COMMON"/worktrees/*)
    hook=$CODEFLEET_GIT_HOOKS/$name
    if [ "$name" = reference-transaction ]; then
        moves=$(cat)
        if [ "$1" = prepared ]; then
            printf '%s\\n' "$moves" | while read -r old new ref; do
                case $ref in
                "$CODEFLEET_GIT_OWN" | refs/worktree/* | refs/bisect/* | refs/rewritten/*) ;;
                refs/*)
                    echo "codefleet: $ref is not this run's to move; it works on $CODEFLEET_GIT_OWN" >&2
                    exit 1
                    ;;
                esac
            done || exit 1
        fi
        [ -x "$hook" ] || exit 0
        printf '%s\\n' "$moves" | "$hook" "$@"
        exit
    fi
    ;;
*)
    hook=$(unset GIT_CONFIG_COUNT; git rev-parse --git-path "hooks/$name") || exit 0
    ;;
esac
[ -x "$hook" ] || exit 0
exec "$hook" "$@"
"""


def install(tree: Tree) -> Path:
    """The folder with the hooks, written once for each repository."""
    folder = layout.shared(tree.common) / "hooks"
    script = folder / NAMES[0]
    if layout.read(script) != SCRIPT or not all((folder / name).exists() for name in NAMES):
        with space.writing(tree.common):
            folder.mkdir(parents=True, exist_ok=True)
            for name in NAMES:
                _write(folder / name)
    return folder


def _write(file: Path) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(SCRIPT)
    beside.chmod(0o755)
    beside.replace(file)


def variables(tree: Tree, own: str, customs: Customs) -> Mapping[str, str]:
    """Git's variables for a child in a working tree that may move only this ref."""
    settings = {
        "core.hooksPath": str(install(tree)),
        "commit.gpgSign": "false",  # nobody is there to type a passphrase
        "tag.gpgSign": "false",
        "gc.auto": "0",  # it would go on in the background when the run has ended
        "maintenance.auto": "false",
    }
    return {
        **customs.who.variables,
        **git.configuration(settings),
        "GIT_TERMINAL_PROMPT": "0",
        "CODEFLEET_GIT_COMMON": str(tree.common),
        "CODEFLEET_GIT_HOOKS": str(tree.path / customs.hooks),
        "CODEFLEET_GIT_OWN": own,
    }
