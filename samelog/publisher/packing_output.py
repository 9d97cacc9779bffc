"""Compresses batches before they are written to a session's file.

A batch is compressed when it is closed, so records have to come together for it to gain much: many
in one append, or with a linger time. Nodes merge it as it is; Kafka's consumers and all readers
unpack it.

Invariant: what is written has the same records, counts and numbers, batch by batch, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.format.compression import Codec
from samelog.format.recompression import packed
from samelog.publisher.output import Output
from samelog.publisher.records import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer


class PackingOutput:
    """An output that compresses. Not thread-safe: the publisher's lock is held."""

    __slots__ = ("_codec", "_output", "name")

    def __init__(self, output: Output, codec: Codec) -> None:
        self.name: TopicPartition = output.name
        self._output = output
        self._codec = codec

    def write(self, data: bytes) -> None:
        """Append whole batches. Raises as `Output.write`."""
        self._output.write(packed(data, self._codec))

    def write_record(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] | None,
        timestamp: int,
        max_record_bytes: int,
    ) -> None:
        """Append one record as a batch of its own. Raises as `Output.write_record`."""
        self.write(kernels.build_record(value, key, headers, timestamp, max_record_bytes))
