"""A live cluster: what each of its nodes gives, against what the cluster's history says.

Every node is asked by itself, for every file that is not archived. Invariant: no node answers for
another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import NamedTuple

from samelog.admin.answers import LogFile
from samelog.admin.log_history import log_history
from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig
from samelog.format import _kernels as kernels
from samelog.format.file_names import LOG, segment_name
from samelog.spark.errors import SourceError
from samelog.spark.jobs.findings import (
    CheckOutcome,
    Link,
    LogFinding,
    Series,
    VerifyPlan,
    broken_links,
    finding,
)
from samelog.spark.jobs.segment_reads import (
    Read,
    faults_of,
    outcome_of,
    read_segment,
    unreadable,
)
from samelog.spark.logs.nodes import Nodes
from samelog.spark.logs.remote_logs import RemoteLogs
from samelog.spark.plan.catalogue import OffsetBounds, TopicState
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.subscriber.tail_reader import Chunk

TIMEOUT_S = 30.0


class NodeFile(NamedTuple):
    """A file's offsets [first, behind) at one node. `sha256`: of its bytes, empty where it is not
    known; `size`: about so many.
    """

    series: Series
    config: str
    node: int
    first: int
    behind: int
    size: int
    sha256: str

    def check(self) -> CheckOutcome:
        """Fetch it."""
        file = segment_name(self.first, LOG)
        whose = self.series
        wanted = OffsetRange(
            PartitionName(whose.topic, whose.partition), whose.topic_id, self.first, self.behind
        )
        try:
            with closing(Nodes(self.config, timeout_s=TIMEOUT_S, only=self.node)) as node:
                read = _read(node.read(wanted), wanted)
        except SourceError as error:
            return unreadable(whose, self.first, file, error)
        return outcome_of(whose, file, read, self.behind, self._findings(file, read))

    def _findings(self, file: str, read: Read) -> Iterator[LogFinding]:
        yield from faults_of(self.series, file, read.check)
        if self.sha256 and self.sha256 != read.sha256:
            wanted = f"SHA-256 {self.sha256}, as the cluster's log-history says"
            yield finding(self.series, self.first, file, wanted=wanted, found=read.sha256)


def _read(chunks: Iterator[Chunk], wanted: OffsetRange) -> Read:
    """Check a range; its first batch may begin before it, where records were deleted."""
    pieces = _within(chunks, wanted)
    first = next(pieces, b"")
    base = int.from_bytes(first[:8], "big") if first else wanted.start
    return read_segment(chain([first], pieces), min(base, wanted.start))


def _within(chunks: Iterator[Chunk], wanted: OffsetRange) -> Iterator[bytes]:
    """The bytes of the batches in a range, whose ends are borders of batches."""
    for chunk in chunks:
        data, offset, start, stop = chunk.data, chunk.first_offset, 0, chunk.size
        for header in kernels.batch_headers(data, 0, chunk.size):
            if offset >= wanted.end:
                stop = header[0]
                break
            offset += header[2]
            if offset <= wanted.start:
                start = header[0] + header[1]
        yield data[start:stop]


def plan_cluster(path: str, topics: Sequence[str]) -> VerifyPlan:
    """What there is to check of these topics, or all of them, at the nodes. Raises SourceError,
    AdminError.
    """
    config, plan = load_client(path), VerifyPlan()
    with closing(RemoteLogs(Nodes(path, timeout_s=TIMEOUT_S))) as logs:
        found = logs.topic_states(topics or logs.names())
        missing = sorted(set(topics) - set(found))
        if missing:
            raise SourceError(f"there is no topic {', '.join(missing)} in {config.cluster}")
        for topic, state in found.items():
            files = list(log_history(config, topic))
            for partition, bounds in state.partitions.items():
                held = [file for file in files if file.partition == partition]
                _plan_partition(plan, (path, config), _of(topic, partition, state), bounds, held)
    return plan


def _piece(file: LogFile, start: int) -> tuple[int, int, int, str]:
    """What can be read of a file: (first offset, next one, bytes, SHA-256 if it is the whole)."""
    if file.first_offset < start:
        return start, file.next_offset, file.size_bytes, ""
    return file.first_offset, file.next_offset, file.size_bytes, file.sha256


def _of(topic: str, partition: int, state: TopicState) -> Series:
    return Series("", topic, state.topic_id, partition)


def _plan_partition(
    plan: VerifyPlan,
    client: tuple[str, ClientConfig],
    series: Series,
    bounds: OffsetBounds,
    files: Sequence[LogFile],
) -> None:
    """Every file that can be read whole, and what is behind the last sealed one."""
    sealed = [file for file in files if file.rolled_ms >= 0 and file.next_offset <= bounds.end]
    links = [
        Link(segment_name(file.first_offset, LOG), file.first_offset, file.next_offset)
        for file in sealed
    ]
    whole = series._replace(where="log-history")
    plan.findings += broken_links(whole, links)
    pieces = [
        _piece(file, bounds.start)
        for file in sealed
        if file.archived_ms < 0 and file.next_offset > bounds.start
    ]
    begin = max([bounds.start, *(file.next_offset for file in sealed)])
    if begin < bounds.end:
        size = int((bounds.end - begin) * (bounds.record_bytes or 1))
        pieces.append((begin, bounds.end, size, ""))
    path, config = client
    for number, address in enumerate(config.nodes):
        name = config.node_names[number] if config.node_names else str(address)
        for first, behind, size, sha256 in pieces:
            at = series._replace(where=f"node {name}")
            plan.tasks.append(NodeFile(at, path, number, first, behind, size, sha256))
