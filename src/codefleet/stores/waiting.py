"""Waiting for something to happen, with a timeout on the fleet's clock."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from codefleet.ports import Clock


class Bell:
    """Rings for everybody who waits at that moment."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def ring(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def listen(self) -> anyio.Event:
        """The next ring. Take it before looking, so that none is missed."""
        if self._event is None:
            self._event = anyio.Event()
        return self._event


async def wait_until(true: Callable[[], bool], bell: Bell, clock: Clock, timeout: float, poll: float) -> bool:
    """Until a condition holds (True) or the timeout passes (False). Looks at each ring, and every `poll` seconds."""
    if true():
        return True
    if timeout <= 0:
        return False
    found = False

    async def watch(scope: anyio.CancelScope) -> None:
        nonlocal found
        while not found:
            ring = bell.listen()
            if not (found := true()):
                with anyio.move_on_after(poll):
                    await ring.wait()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        await clock.sleep(timeout)
        group.cancel_scope.cancel()
    return found
