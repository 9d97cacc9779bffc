"""Asks a cluster about its mirrors, whose partitions are on several nodes.

Invariant: of a partition, what the node says counts that is furthest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from samelog.admin.client import AskedNode, all_nodes, ask, ask_each
from samelog.admin.mirror_answers import MirroredPartition, MirrorInfo, MirrorRows
from samelog.admin.mirror_requests import ListMirrors
from samelog.config.tables.client import ClientConfig

NodeRows: TypeAlias = tuple[AskedNode, MirrorRows]
MirroredRows: TypeAlias = dict[tuple[str, int], tuple[MirroredPartition, AskedNode]]
MirrorHolders: TypeAlias = Mapping[tuple[str, int], AskedNode]
"""(topic id, partition) -> the node that is furthest; none of partitions that every node has."""


def all_mirrors(config: ClientConfig) -> tuple[MirrorRows, MirrorHolders]:
    """Return all mirrors with all partitions that some node has, and who that is. Raises
    AdminError.
    """
    found = ask(config, ListMirrors())
    if all(len(each.partitions) == each.partition_count for each in found.mirrors):
        return found, {}
    nodes = all_nodes(config)
    answers = zip(nodes, ask_each(config, ListMirrors(), nodes), strict=True)
    return joined(found, [(node, rows) for node, rows in answers if isinstance(rows, MirrorRows)])


def joined(found: MirrorRows, told: Sequence[NodeRows]) -> tuple[MirrorRows, MirrorHolders]:
    """Return the mirrors that one node names, with partitions as all say, and who has these."""
    said: MirroredRows = {}
    for node, rows in told:
        for mirror in rows.mirrors:
            for each in mirror.partitions:
                key = mirror.topic_id, each.partition
                if key not in said or said[key][0].next_offset < each.next_offset:
                    said[key] = each, node
    mirrors = tuple(_whole(each, said) for each in found.mirrors)
    return replace(found, mirrors=mirrors), {key: node for key, (_, node) in said.items()}


def _whole(mirror: MirrorInfo, said: MirroredRows) -> MirrorInfo:
    own = {each.partition: each for each in mirror.partitions}
    found = []
    for index in range(mirror.partition_count):
        known = said.get((mirror.topic_id, index))
        row = own.get(index) if known is None else known[0]
        found += [] if row is None else [row]
    return replace(mirror, partitions=tuple(found))
