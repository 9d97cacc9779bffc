"""What nodes say of themselves, and what their checksums say together.

Invariant: a view is of one boot of a node; a later one begins with an empty view.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from samelog.format.positions import SessionPosition

NOWHERE = SessionPosition(-1, 0, 0)


class KeptFiles(NamedTuple):
    """What a node has of a partition on its disk: where its history of archived files ends, the
    newest compaction of which it has all segments, and where its index of keys ends.
    """

    archived: int = 0
    compacted: int = 0
    indexed: int = 0


NO_FILES = KeptFiles()


@dataclass(slots=True)
class NodeView:
    """What one node last said of itself."""

    boot: int = 0
    places: dict[int, SessionPosition] = field(default_factory=dict)
    merged_durable: dict[int, int] = field(default_factory=dict)
    samples: dict[int, dict[int, int]] = field(default_factory=dict)
    """Partition -> offset -> running checksum; those that are not agreed on."""
    told: dict[int, dict[int, int]] = field(default_factory=dict)
    """As `samples`, agreed on meanwhile or not: the newest of each partition, for people."""
    files: dict[int, KeptFiles] = field(default_factory=dict)
    """Of partitions that were archived or compacted, or have keys that count once."""


def verdict(
    votes: Mapping[tuple[int, int], int], voters: int
) -> tuple[tuple[int, int] | None, int | None]:
    """Of how many report each (offset, checksum): the newest that a majority has; without one, the
    first offset at which none can come about any more, whatever those report who have not yet.
    """
    needed = voters // 2 + 1
    best = max((sample for sample, count in votes.items() if count >= needed), default=None)
    if best is not None:
        return best, None
    by_offset: defaultdict[int, list[int]] = defaultdict(list)
    for (offset, _), count in votes.items():
        by_offset[offset].append(count)
    split = (o for o, counts in by_offset.items() if max(counts) + voters - sum(counts) < needed)
    return None, min(split, default=None)


def may_agree(
    partition: int, votes: Mapping[tuple[int, int], int], views: Sequence[NodeView]
) -> bool:
    """Whether a majority may yet report the newest (offset, checksum) of a partition: not who has
    copied past that offset, as members of its new group have, where it came from another one.
    """
    newest = max(votes, default=(-1, 0))[0]
    silent = [each for each in views if newest not in each.samples.get(partition, {})]
    passed = sum(each.merged_durable.get(partition, 0) >= newest for each in silent)
    return newest >= 0 and 2 * (len(views) - passed) > len(views)
