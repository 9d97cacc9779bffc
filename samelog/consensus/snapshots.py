"""A follower's side of receiving a snapshot in chunks.

Invariant: the bytes held are a prefix of exactly one snapshot of one leader's term; any other chunk
starts anew.
"""

from __future__ import annotations

from samelog.consensus.errors import MalformedMessage
from samelog.consensus.membership import Membership, check_membership
from samelog.consensus.messages import SnapshotChunk
from samelog.consensus.types import Snapshot


class SnapshotReceiver:
    """Collects the chunks of one snapshot at a time."""

    __slots__ = ("_data", "_source")

    def __init__(self) -> None:
        self._source: tuple[int, ...] | None = None
        self._data = bytearray()

    def receive(self, sender: int, chunk: SnapshotChunk) -> Snapshot | None:
        """Take a chunk if it is the next one; the whole snapshot if that was the last."""
        if chunk.offset + len(chunk.data) > chunk.total_bytes:
            raise MalformedMessage(
                f"a chunk passes the end of its snapshot of {chunk.total_bytes} bytes"
            )
        if chunk.last_term > chunk.term:
            raise MalformedMessage(f"a snapshot of term {chunk.last_term} in term {chunk.term}")
        source = (sender, chunk.term, chunk.last_index, chunk.last_term, chunk.total_bytes)
        if source != self._source:
            self._source = source
            self._data = bytearray()
        if chunk.offset == len(self._data):
            self._data += chunk.data
        if len(self._data) < chunk.total_bytes:
            return None
        return self._finish(chunk)

    @property
    def next_offset(self) -> int:
        """Where the next chunk must begin."""
        return len(self._data)

    def discard(self) -> None:
        """Forget what was received."""
        self._source = None
        self._data = bytearray()

    def _finish(self, chunk: SnapshotChunk) -> Snapshot:
        data = bytes(self._data)
        self.discard()
        try:
            check_membership(Membership(chunk.voters, chunk.learners))
        except ValueError as error:
            raise MalformedMessage(f"the snapshot's membership: {error}") from error
        return Snapshot(chunk.last_index, chunk.last_term, chunk.voters, chunk.learners, data)
