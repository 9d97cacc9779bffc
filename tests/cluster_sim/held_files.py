"""What the disks of simulated machines hold of a file, for what judges them.

Invariant: looking changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samelog.store.merged.log import MergedLog
from tests.cluster_sim.inode import Inode

if TYPE_CHECKING:
    from samelog.format.segment import Segment
    from tests.cluster_sim.actor import Actor
    from tests.cluster_sim.node import NodeActor


def segments_from(log: MergedLog, base: int) -> Iterator[Segment]:
    """The segment that begins there and all behind it; all, if there is none."""
    segment = log.segment(base)
    if segment is None:
        yield from log.segments()
    while segment is not None:
        yield segment
        segment = log.segment(segment.next_offset) if segment.sealed else None


def is_durable(actor: Actor, path: str, size: int) -> bool:
    """Whether a file survives a power failure under its name, at least so long."""
    inode = actor.disk.find(path)
    return (
        isinstance(inode, Inode)
        and inode.durable_size() >= size
        and actor.disk.is_named_durably(path)
    )


def is_set_aside(node: NodeActor, path: str, size: int) -> bool:
    """Whether a node had the bytes on its disk until it found rot there, and set them aside.

    Leaders plan by what nodes have told them. Bytes that rot between that and the commit are a
    fault of the disk, as bytes that rot later are, and count as one: a minority's disks may rot.
    Other bytes of the node, or not durable when they were set aside, excuse nothing.
    """
    if not node.has_rotten:
        return False
    directory, name = path.rsplit("/", 1)
    session, partition = directory.rsplit("/", 1)
    places = rf"{re.escape(session)}/(quarantine/)?{re.escape(partition)}(\.quarantined-\d+)?/"
    aside = re.compile(rf"{places}{re.escape(name)}(\.quarantined-\d+)?")
    return any(
        inode.durable_size() >= size and aside.fullmatch(found) is not None
        for found, inode in node.disk.files(f"{session}/")
        if ".quarantined-" in found
    )


def is_kept(node: NodeActor, path: str, size: int) -> bool:
    """Whether a node has a file that is to be archived, durably, or may have lost it since."""
    return node.forgot or node.has_rotten or is_durable(node, path, size)
