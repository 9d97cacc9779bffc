"""A follower's side of receiving a snapshot in chunks, and what a leader sends.

Invariant: the bytes held are a prefix of exactly one snapshot of one leader's term; any other chunk
starts over. A sent snapshot reaches at least to the beginning of the log.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from samelog.consensus.errors import MalformedMessage
from samelog.consensus.membership import Membership, check_membership
from samelog.consensus.messages import SnapshotChunk
from samelog.consensus.types import Snapshot


class KeptSnapshot:
    """The newest snapshot that a node has. If its driver can read it, only its mark is kept."""

    __slots__ = ("_newest", "_read")

    def __init__(self, newest: Snapshot | None) -> None:
        self._newest = newest
        self._read: Callable[[], Snapshot | None] | None = None

    def read_with(self, read: Callable[[], Snapshot | None]) -> None:
        """Whoever gives the newest one, when it is to be sent."""
        self._read = read
        if self._newest is not None:
            self.keep(self._newest)

    def keep(self, snapshot: Snapshot) -> None:
        """This is the newest one."""
        reads = self._read is not None
        self._newest = msgspec.structs.replace(snapshot, data=b"") if reads else snapshot

    def whole(self, base_index: int) -> Snapshot | None:
        """To be sent by a node whose log begins behind `base_index`; None: there is none."""
        found = self._newest if self._read is None else self._read()
        is_enough = found is not None and found.data and found.last_index >= base_index
        return found if is_enough else None


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
