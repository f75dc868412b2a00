"""Waking one that waits, from anywhere in the same event loop."""

from __future__ import annotations

import anyio


class Bell:
    """Rings are not counted and not lost: one that came before the wait ends it at once."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Until it rings (True) or the timeout passes (False)."""
        with anyio.move_on_after(timeout):
            await self._event.wait()
        rang = self._event.is_set()
        if rang:
            self._event = anyio.Event()
        return rang
