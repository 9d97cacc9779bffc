"""Notices sessions whose records are not in the partitions that Kafka's murmur2 gives their keys.

`dedup.key` and compaction count keys per partition. A client with another partitioner, such as
librdkafka's default (CRC32), puts a key into another partition than other clients do, where it
counts once more. A leader compares a sample of what it takes.

Invariant: nothing is refused or changed; a session is logged once for a topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.batch import read_header
from samelog.format.errors import LogFormatError
from samelog.sequencer.ingest.batch_check import Unpacking
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.tables.topics import Topic

log = logging.getLogger(__name__)

FIRST_FRAMES, EVERY_FRAMES = 16, 64
"""Of an input, the first frames are compared, and then one of so many."""
MOST_BYTES = 1 << 20
"""A batch that is larger, or unpacks to more, is not compared."""
MOST_INPUTS = 10_000
REMEDY = "set partitioner=murmur2_random in librdkafka's clients"
_POSITIVE = 0x7FFFFFFF


@dataclass(slots=True)
class SampledInput:
    """What was compared of one input."""

    session: str
    partition: int
    """The partition's number in the cluster."""
    frames: int = 0
    compared: int = 0
    """Records with keys."""
    misplaced: int = 0
    """Those of them whose keys belong in another partition."""


class KeyPlacement:
    """Of the inputs of one replica."""

    def __init__(self) -> None:
        self.misplaced_records = 0
        """Of all samples."""
        self._inputs: dict[int, SampledInput] = {}
        self._logged: set[tuple[str, str]] = set()

    def look(self, entry: Input, topic: Topic, index: int, data: memoryview) -> None:
        """Compare the first batch of what a leader takes of an input, if it is its turn."""
        known = self._inputs.get(entry.number)
        if known is None:
            known = self._inputs[entry.number] = SampledInput(entry.session, entry.partition)
            if len(self._inputs) > MOST_INPUTS:
                del self._inputs[next(iter(self._inputs))]
        known.frames += 1
        if known.frames <= FIRST_FRAMES or known.frames % EVERY_FRAMES == 0:
            self._compare(known, topic, index, data)

    def _compare(self, known: SampledInput, topic: Topic, index: int, data: memoryview) -> None:
        size = read_header(data).size
        if size > MOST_BYTES:
            return
        try:
            keys = kernels.keys_of(data[:size], 0, size, Unpacking(MOST_BYTES))
        except LogFormatError:
            return  # it unpacks to more
        places = [
            (kernels.murmur2(key) & _POSITIVE) % topic.partitions for key in keys if key is not None
        ]
        misplaced = sum(place != index for place in places)
        known.compared += len(places)
        known.misplaced += misplaced
        self.misplaced_records += misplaced
        if misplaced and (known.session, topic.name) not in self._logged:
            self._logged.add((known.session, topic.name))
            text = "session %s writes keys into %s-%d that belong in other partitions by Kafka's "
            text += "murmur2: a key counts once per partition; %s"
            log.warning(text, known.session, topic.name, index, REMEDY)

    def misplaced_in(self, partition: int) -> Iterator[SampledInput]:
        """Yield the samples of a partition that have misplaced keys."""
        for each in self._inputs.values():
            if each.partition == partition and each.misplaced:
                yield each
