"""How a freshly forked process becomes the program that the job asks for."""

from __future__ import annotations

import errno
import os
import signal

from codefleet.processes.guard import kernel
from codefleet.processes.guard.records import MARK, Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def become(job: Job, *, released: int, status: int, outputs: list[int], queue: int) -> NoReturn:
    """Wait until our pid is on record, then be the program. If the guard dies before, nothing runs."""
    try:
        os.setsid()
        _default_signals()
        if os.read(released, 1) != b"g":
            os._exit(126)
        kernel.adopt_orphans()
        _be_killed_first()
        os.pwrite(status, b"begun\0", MARK)
        _settle(job, outputs, queue)
        _execute(job)
    except OSError as error:
        code = 127 if error.errno == errno.ENOENT else 126
        could_not(status, code, f"{os.fsdecode(error.filename or job.argv[0])}: {error.strerror}")
        os._exit(code)
    finally:
        os._exit(126)


def could_not(status: int, code: int, why: str) -> None:
    """Leave word that the program was not run, and why."""
    os.pwrite(status, f"failed {code} {why[:1000]}".encode("utf-8", "replace") + b"\0", MARK)


def _default_signals() -> None:
    """What we or Python ignore; all else is as a program expects it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _be_killed_first() -> None:
    """When memory runs out, the child goes before its guard. Where that may not be set, nothing is lost."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"300")
        os.close(fd)
    except OSError:
        pass


def _settle(job: Job, outputs: list[int], queue: int) -> None:
    """Standard descriptors and the working directory. The queue's pipe is opened for writing too: while the child
    lives, no death around it reads as the end of its input."""
    if job.stdin == "queue":
        source = os.open("stdin", os.O_RDWR)
        os.set_inheritable(queue, True)
    else:
        source = os.open(job.stdin, os.O_RDONLY)
    os.dup2(source, 0)
    os.close(source)
    for number, fd in enumerate(outputs, 1):
        os.dup2(fd, number)
    os.chdir(job.cwd)


def _execute(job: Job) -> None:
    """Become the program, which is looked for on the job's own PATH. Raises if there is none."""
    name = job.argv[0]
    key, _, value = job.mark.partition("=")
    env = {**job.env, key: value}
    missing: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    folders = job.env.get("PATH", os.defpath).split(os.pathsep)
    for path in [name] if "/" in name else [f"{folder or '.'}/{name}" for folder in folders]:
        try:
            os.execve(path, job.argv, env)  # noqa: S606 - no shell is the point
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            missing = error
            missing.filename = path
    raise missing
