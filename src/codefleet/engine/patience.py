"""Doing once more what somebody or something may have broken off by chance."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from codefleet.core.errors import GitError

log = logging.getLogger(__name__)

T = TypeVar("T")

GIT_TRIES = 3


async def again(act: Callable[[], Awaitable[T]]) -> T:
    """Do something with git, and once or twice more when git fails: somebody may have killed it."""
    for _ in range(GIT_TRIES - 1):
        try:
            return await act()
        except GitError as error:
            log.warning("git_again", extra={"error": error.message})
    return await act()
