"""What the file system under a store must be: local, and with room."""

from __future__ import annotations

import os
from pathlib import Path

from codefleet.core.errors import NoSpace, StoreUnavailable

_NETWORK = frozenset(
    "nfs nfs3 nfs4 cifs smb3 smbfs afs ceph glusterfs lustre beegfs gpfs ocfs2 orangefs ncpfs davfs coda".split()
)
_NETWORK_FUSE = ("sshfs", "s3fs", "gcsfuse", "rclone", "glusterfs", "ceph", "davfs", "goofys", "smbnetfs", "juicefs")


def mount_of(path: Path, mounts: str) -> tuple[str, str, str]:
    """Mount point, type and options of the file system that a real path lies on, after a mountinfo table."""
    best = ("", "", "")
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if path.is_relative_to(point) and len(point) >= len(best[0]):
            kind, _, *options = right.split()
            best = (point, kind, " ".join(options))
    return best


def is_network(kind: str, options: str) -> bool:
    """Is this a file system on which locks and shared memory do not hold?"""
    if kind.startswith("fuse"):
        return kind.partition(".")[2].startswith(_NETWORK_FUSE)
    return kind in _NETWORK or (kind == "9p" and "aname=drvfs" in options)


def refuse_network(folder: Path) -> None:
    """A store shares memory between processes: that works on this machine's own disks only."""
    table = Path("/proc/self/mountinfo")
    if not table.exists():
        return
    point, kind, options = mount_of(folder.resolve(), table.read_text(errors="surrogateescape"))
    if is_network(kind, options):
        raise StoreUnavailable(
            f"{folder} lies on {point}, a network file system ({kind}), where a store would lose data",
            hint="set CODEFLEET_HOME to a folder on a local disk",
        )


def require_space(folder: Path, least: int) -> None:
    """Below this many free bytes nothing is begun."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < least:
        raise no_space(folder, f"{free / 2**20:.1f} MB are free, {least / 2**20:.0f} MB are needed")


def no_space(folder: Path, why: str) -> NoSpace:
    return NoSpace(
        f"the file system of {folder} is full: {why}",
        hint="free some space there; nothing was lost and work continues when there is room",
    )
