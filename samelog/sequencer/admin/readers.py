"""Answers administrators about who reads merged logs here, and how far each has come.

Invariant: looking changes nothing, and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator

from samelog.admin.requests import ListSubscribers
from samelog.admin.views import ReadPartition, SubscriberRow, Subscribers
from samelog.format.steps import StepWork
from samelog.replicator.pull.server import PullServer
from samelog.replicator.pull.streams import ServedMerged
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.sessions import wall_ms
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.store.merged.log import MergedLog


def list_subscribers(node: ServedNode, request: ListSubscribers) -> StepWork[Subscribers]:
    """Who reads merged logs now."""
    rows = []
    for server in tuple(node.member.connections.pulls):
        row = yield from _subscriber(node, server)
        if row.partitions:
            rows.append(row)
    return Subscribers(tuple(rows))


def _subscriber(node: ServedNode, server: PullServer) -> StepWork[SubscriberRow]:
    clock, partitions = node.member.clock, []
    for each in read_partitions(server):
        partitions.append(each)
        yield
    return SubscriberRow(
        str(server.link.identity),
        server.link.peername,
        wall_ms(clock, server.since),
        server.sent.total,
        round(server.sent.rate(clock.now()), 1),
        tuple(partitions),
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
