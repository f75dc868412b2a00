"""What `kernel` promises, as Linux 5.3 and later keep it: /proc, descriptors of processes, orphans that come to us."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import signal
import time

from codefleet.processes.guard.records import read_file

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_CHILD_SUBREAPER = 36
_PIDFD_GETFD = 438
_PIDFD_GET_INFO = 0xC040FF0B
_INFO_EXIT = 8
_CHILDREN_LISTED = os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - pathlib costs more than all the rest


@functools.cache
def here() -> tuple[str, str]:
    """Where pids mean what they mean: this boot of the machine, and this namespace."""
    boot = read_file("/proc/sys/kernel/random/boot_id").decode().strip()
    return boot, os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115 - as above


def stat(pid: int) -> tuple[str, int, int, int] | None:
    """State letter, parent, start and wait status (of a zombie); None if there is no such process."""
    try:
        fields = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[19]), int(fields[49])


def start_of(pid: int) -> int:
    """The start of a process in ticks since boot; 0 if there is none."""
    found = stat(pid)
    return found[2] if found else 0


def state_of(pid: int, start: int) -> str:
    """The state letter of exactly this process; empty when it is gone."""
    found = stat(pid)
    return found[0] if found and found[2] == start else ""


def lives(pid: int, start: int) -> bool:
    """Exactly this process is there and not a corpse."""
    return pid > 1 and state_of(pid, start) not in {"", "Z", "X"}


def children(pid: int) -> list[int]:
    """The children of a process, whichever of its threads forked them."""
    if not _CHILDREN_LISTED:
        return [other for other in everyone() if (stat(other) or ("", 0))[1] == pid]
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - as above
            found += map(int, read_file(f"/proc/{pid}/task/{task}/children").split())
    except OSError:
        pass
    return found


def descendants(*roots: int) -> dict[int, int]:
    """All living processes below these, with their starts."""
    found: dict[int, int] = {}
    todo = list(roots)
    while todo:
        for child in children(todo.pop()):
            known = stat(child)
            if known and child not in found and known[0] not in {"Z", "X"}:
                found[child] = known[2]
                todo.append(child)
    return found


def everyone() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above


def carrying(mark: str) -> dict[int, int]:
    """All living processes that have this variable in the environment that they began with."""
    wanted = os.fsencode(mark)
    found = {pid: start_of(pid) for pid in everyone() if wanted in _environment(pid)}
    return {pid: start for pid, start in found.items() if lives(pid, start)}


def _environment(pid: int) -> list[bytes]:
    try:
        return read_file(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return []


def send(pid: int, start: int, number: int) -> bool:
    """Signal exactly this process; False only if we are not allowed to. It may be gone already."""
    if pid <= 1 or pid == os.getpid():
        raise ValueError(f"pid {pid} is nobody we may signal")
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if start_of(pid) == start:
            signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    finally:
        os.close(fd)
    return True


def open_process(pid: int, start: int) -> int:
    """A pidfd of exactly this process, a corpse included; -1 if it is gone."""
    if pid <= 1:
        return -1
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return -1
    if start_of(pid) == start:
        return fd
    os.close(fd)
    return -1


def code_of_stranger(pidfd: int, pid: int, start: int) -> str:
    """How a process that is not our child has ended: its code, or `unknown`, never a guess."""
    for _ in range(20):
        status = _status_of_corpse(pid, start)
        if status is None:
            status = _status_by_pidfd(pidfd)
        if status is not None:
            return str(os.waitstatus_to_exitcode(status))
        if not state_of(pid, start):
            break
        time.sleep(0.01)
    status = _status_by_pidfd(pidfd)
    return "unknown" if status is None else str(os.waitstatus_to_exitcode(status))


def _status_of_corpse(pid: int, start: int) -> int | None:
    """The kernel shows it to the same user only, and shows others 0."""
    found = stat(pid)
    if found is None or found[0] != "Z" or found[2] != start:
        return None
    try:
        ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116 - as above
    except OSError:
        return None
    return found[3] if ours else None


def _status_by_pidfd(pidfd: int) -> int | None:
    """From Linux 6.15 on, also when somebody else has reaped it."""
    if pidfd < 0 or "CODEFLEET_TEST_NO_PIDFD_INFO" in os.environ:
        return None
    answer = bytearray(64)
    answer[0] = _INFO_EXIT
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, answer)
    except OSError:
        return None
    return int.from_bytes(answer[60:64], "little", signed=True) if answer[0] & _INFO_EXIT else None


def adopt_orphans() -> None:
    """From now on, descendants whose parent dies become our children (also after an exec)."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_fd(pidfd: int, number: int) -> int:
    """A duplicate of another process's descriptor; -1 where the kernel does not allow it."""
    return int(_LIBC.syscall(_PIDFD_GETFD, pidfd, number, 0)) if pidfd >= 0 else -1


def move(pipe: int, queue: int, most: int) -> int:
    """Bytes of the queue into the pipe; the queue's place moves in the same call."""
    return os.sendfile(pipe, queue, None, most)


def place_of(pid: int, number: int, file: int) -> int:
    """The place that another process's descriptor has in this file; 0 if it has closed it."""
    try:
        if os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), os.fstat(file)):  # noqa: PTH116 - as above
            return int(read_file(f"/proc/{pid}/fdinfo/{number}").split()[1])
    except OSError:
        pass
    return 0
