"""Answers administrators about who reads merged logs here, and how far each has come.

Invariant: looking changes nothing, and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator

from samelog.admin.requests import ListSubscribers
from samelog.admin.views import ReadPartition, SubscriberRow, Subscribers
from samelog.replicator.pull.server import PullServer
from samelog.replicator.pull.streams import ServedMerged
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.sessions import wall_ms
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.store.merged.log import MergedLog


def list_subscribers(node: ServedNode, request: ListSubscribers) -> Subscribers:
    """Who reads merged logs now."""
    rows = (_subscriber(node, server) for server in node.member.connections.pulls)
    return Subscribers(tuple(row for row in rows if row.partitions))


def _subscriber(node: ServedNode, server: PullServer) -> SubscriberRow:
    clock = node.member.clock
    return SubscriberRow(
        str(server.link.identity),
        server.link.peername,
        wall_ms(clock, server.since),
        server.sent.total,
        round(server.sent.rate(clock.now()), 1),
        tuple(read_partitions(server)),
    )


def read_partitions(server: PullServer) -> Iterator[ReadPartition]:
    """The merged logs that one connection reads."""
    for served, position in server.places:
        if isinstance(served, ServedMerged) and isinstance(served.stream, MergedPartition):
            stream = served.stream
            behind = _bytes_behind(stream.log, *position)
            yield ReadPartition(stream.topic, stream.index, *position, behind)


def _bytes_behind(log: MergedLog, segment: int, byte: int) -> int:
    sizes = (each.size for each in log.segments() if each.base_offset >= segment)
    return max(0, sum(sizes) - byte)
