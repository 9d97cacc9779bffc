"""The plain form of what connections decode in place: cuts a stream of bytes into frames."""

from __future__ import annotations

from samelog.wire.errors import FrameError
from samelog.wire.frames import HEADER_BYTES, Frame, decode_channel, decode_header


class FrameDecoder:
    """Frames, as they become whole."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._error: FrameError | None = None

    @property
    def wanted_bytes(self) -> int:
        """Bytes still missing of the frame begun, as far as is known; 0 between frames."""
        if not self._held:
            return 0
        if len(self._held) < HEADER_BYTES:
            return HEADER_BYTES - len(self._held)
        return max(0, HEADER_BYTES + decode_header(self._held)[1] - len(self._held))

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes as they came."""
        self._held += data

    def next(self) -> Frame | None:
        """The next whole frame, or None: need more. Raises FrameError, and then always the same."""
        if self._error is not None:
            raise self._error
        if len(self._held) < HEADER_BYTES:
            return None
        try:
            frame_type, length = decode_header(self._held)
        except FrameError as error:
            self._error = error
            self._held.clear()
            raise
        stop = HEADER_BYTES + length
        if len(self._held) < stop:
            return None
        payload, channel = bytes(self._held[HEADER_BYTES:stop]), decode_channel(self._held)
        del self._held[:stop]
        return Frame(frame_type, payload, channel)
