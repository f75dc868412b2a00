"""Lines out of pieces of output, however long they are."""

from __future__ import annotations

from collections.abc import Iterator

from codefleet.ports import Line


class Splitter:
    """Cuts what is read into lines and knows where each began. Of a very long line it keeps the beginning."""

    PIECE = 1 << 16
    KEPT = 1 << 20

    def __init__(self, offset: int) -> None:
        self.read = offset
        """Where the next piece begins."""
        self._begin = offset
        self._kept = bytearray()

    def feed(self, piece: bytes) -> Iterator[Line]:
        """The lines that this piece completes."""
        *whole, tail = piece.split(b"\n")
        for part in whole:
            self._take(part)
            self.read += 1
            yield self._line()
        self._take(tail)

    def rest(self) -> Iterator[Line]:
        """A last line that nobody ended."""
        if self.read > self._begin:
            yield self._line(ended=False)

    def _take(self, part: bytes) -> None:
        self._kept += part[: self.KEPT - len(self._kept)]
        self.read += len(part)

    def _line(self, *, ended: bool = True) -> Line:
        length = self.read - self._begin - ended
        line = Line(self._begin, self.read, bytes(self._kept), cut=length > len(self._kept))
        self._begin = self.read
        self._kept = bytearray()
        return line
