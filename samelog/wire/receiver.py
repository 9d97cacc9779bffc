"""The receiving side of shipping, as a pure state: what may come next.

A receiver owns positions. DATA must start exactly where its handle stands: a gap, an overlap or a
batch that is not whole and valid is the peer's fault and ends the connection; both then resume from
what the receiver really holds.

Invariant: the position of a handle only moves forward, over bytes that were accepted in order.
"""

from __future__ import annotations

from typing import NamedTuple

from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import NO_BATCH

_RESUME = "reconnect and resume from the receiver's position"


class ResumePoint(NamedTuple):
    """Where a log goes on, and the batch before that in the same file (NO_BATCH: none, or unknown).

    `file` is the roll in a session log, the base offset of the segment in a merged log.
    """

    file: int
    byte: int
    last_start: int = NO_BATCH
    last_crc: int = 0


class Receiver:
    """What one connection receives."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        """Handle -> (file, byte) of what comes next."""

    def expect(self, handle: int, file: int, byte: int) -> None:
        """DATA for `handle` starts here. Raises ValueError if it is expected already."""
        if handle in self._places:
            raise ValueError(f"handle {handle} is expected already")
        self._places[handle] = file, byte

    def forget(self, handle: int) -> None:
        """Nothing is expected for this handle any more; an unknown one is no error."""
        self._places.pop(handle, None)

    def expects(self, handle: int) -> bool:
        """Whether the handle is open. What comes for one let go of is not a fault, but dropped."""
        return handle in self._places

    def position(self, handle: int) -> tuple[int, int]:
        """(file, byte) of what comes next. Raises KeyError for an unknown handle."""
        return self._places[handle]

    def receive(self, handle: int, file: int, byte: int, size_bytes: int) -> None:
        """DATA came; the handle stands behind it now. Raises ProtocolFault (GAP, PROTOCOL)."""
        place = self._places.get(handle)
        if place is None:
            raise _not_open(handle)
        if (file, byte) != place:
            kind = "overlap" if (file, byte) < place else "gap"
            raise ProtocolFault(
                FaultCode.GAP,
                f"handle {handle}: {kind}, DATA for {(file, byte)} at {place}",
                _RESUME,
            )
        self._places[handle] = file, byte + size_bytes

    def sealed(self, handle: int, file: int, length: int, next_file: int) -> None:
        """The file is sealed; the handle stands at (next_file, 0). Raises ProtocolFault (GAP)."""
        place = self._place(handle)
        if (file, length) != place or next_file <= file:
            raise ProtocolFault(
                FaultCode.GAP,
                f"handle {handle}: file {file} sealed at {length}, next {next_file}, "
                f"but received is {place}",
                _RESUME,
            )
        self._places[handle] = next_file, 0

    def jump(self, handle: int, file: int, byte: int) -> None:
        """What is below is gone; the handle stands at (file, byte). Raises ProtocolFault (GAP)."""
        if (file, byte) < self._place(handle):
            text = f"handle {handle}: truncated at {(file, byte)}, behind what was received"
            raise ProtocolFault(FaultCode.GAP, text, _RESUME)
        self._places[handle] = file, byte

    def _place(self, handle: int) -> tuple[int, int]:
        place = self._places.get(handle)
        if place is None:
            raise _not_open(handle)
        return place


def _not_open(handle: int) -> ProtocolFault:
    text = f"handle {handle} is not open"
    return ProtocolFault(FaultCode.PROTOCOL, text, "open it, and wait for its position")


def check_common(
    handle: int, position: tuple[int, int], said: tuple[int, int], own: tuple[int, int] | None
) -> None:
    """Both sides must hold the same batch before a position, or they speak of different bytes.

    Args:
        handle: what the position is of.
        position: (file, byte) where DATA would start.
        said: (last_start, last_crc) as the other side has them.
        own: (end, crc) of the own batch that starts at `last_start`; None: there is none.

    Raises:
        ProtocolFault: FORK.
    """
    if said[0] < 0:
        return
    if own != (position[1], said[1]):
        raise ProtocolFault(
            FaultCode.FORK,
            f"handle {handle}: the sides differ at byte {said[0]} of file {position[0]}",
            "one of the logs was changed or restored; compare them with samelog verify",
        )
