"""How far a query goes on: from the offset before and what there is now to the next offset.

How much of what there is goes into one micro-batch, and into which tasks.

Invariant: no partition ever goes back; what is lost is told, and passed over only where the query
allows it. Limits are never exceeded, and something is read whenever something is allowed to be;
cutting and packing neither lose nor repeat an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from samelog.format.nouns import counted
from samelog.spark.errors import DataLoss, SourceTopicDeleted
from samelog.spark.plan.catalogue import Catalogue, OffsetBounds, ids_of, partitions_of
from samelog.spark.plan.offsets import OffsetRange, Offsets, PartitionName, StreamOffset

Task = tuple[OffsetRange, ...]


def limit_ends(begins: Offsets, ends: Offsets, most: int) -> Offsets:
    """Ends with at most `most` offsets between them and `begins`, shared in proportion to what each
    partition has; what rounding leaves goes to those that it cut most, by name where equal.
    """
    backlog = {name: ends[name] - begins[name] for name in sorted(ends)}
    total = sum(backlog.values())
    if total <= most:
        return ends
    shares = {name: size * most // total for name, size in backlog.items()}
    rest = most - sum(shares.values())
    for name in sorted(backlog, key=lambda name: -(backlog[name] * most % total))[:rest]:
        shares[name] += 1
    return {name: begins[name] + share for name, share in shares.items()}


def cut(ranges: Sequence[OffsetRange], *, at_least: int, most: int | None) -> list[OffsetRange]:
    """The same offsets in pieces: at least so many pieces if there are as many offsets, none of
    more than `most` offsets. Pieces of one range differ by at most one offset.
    """
    total = sum(each.size for each in ranges)
    piece = max(1, total // at_least) if at_least > len(ranges) else total
    piece = max(1, piece if most is None else min(piece, most))
    pieces = [part for each in ranges for part in _in_parts(each, -(-each.size // piece))]
    while len(pieces) < min(at_least, total):
        largest = max(pieces, key=lambda each: each.size)
        at = pieces.index(largest)
        pieces[at : at + 1] = _in_parts(largest, 2)
    return pieces


def _in_parts(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(bounds) if end > start]


def pack(pieces: Sequence[OffsetRange], *, small: int, at_least: int) -> list[Task]:
    """Tasks of the pieces, in order: pieces of fewer offsets than `small` share a task until it has
    as many, or its fair share. There are at least so many tasks if there are as many pieces.
    """
    fair = sum(each.size for each in pieces) // at_least
    tasks: list[list[OffsetRange]] = []
    for index, piece in enumerate(pieces):
        left = len(pieces) - index
        is_open = bool(tasks) and sum(each.size for each in tasks[-1]) + piece.size <= min(
            small, fair
        )
        if is_open and len(tasks) + left > at_least:
            tasks[-1].append(piece)
        else:
            tasks.append([piece])
    return [tuple(task) for task in tasks]


UNKNOWN_RECORD_BYTES = 1024.0
"""What a record is taken for where nothing is known of its size."""

REMEDY = "set failOnDataLoss to false to continue with what exists, or use another checkpoint"


def begin_stream(catalogue: Catalogue, begins: Offsets) -> StreamOffset:
    """The end of the empty first batch, which pins where the query starts."""
    return StreamOffset(ids_of(catalogue), begins, begins)


def losses(start: StreamOffset, catalogue: Catalogue) -> list[str]:
    """What a query that has come to `start` misses; a text for each partition."""
    bounds = partitions_of(catalogue)
    return [text for name in sorted(start.to) if (text := _loss(start, catalogue, bounds, name))]


def _loss(
    start: StreamOffset,
    catalogue: Catalogue,
    bounds: Mapping[PartitionName, OffsetBounds],
    name: PartitionName,
) -> str | None:
    wanted, known = start.to[name], start.logs[name.topic]
    topic = catalogue.get(name.topic)
    if topic is None:
        return f"{name}: wanted is offset {wanted}, but the topic is gone"
    if topic.topic_id != known:
        return (
            f"{name}: wanted is offset {wanted} of the topic with id {known}, found is one with id "
            f"{topic.topic_id}: it was created again, or is another cluster's"
        )
    held = bounds.get(name)
    if held is None:
        return f"{name}: wanted is offset {wanted}, but there is no such partition"
    if wanted < held.start:
        lost = held.start - wanted
        return (
            f"{name}: wanted is offset {wanted}, found are [{held.start}, {held.end}): "
            f"{counted(lost, 'record')} {'was' if lost == 1 else 'were'} archived before being read"
        )
    if wanted > held.end:
        return f"{name}: wanted is offset {wanted}, but the log ends at {held.end}: it was cut"
    return None


def is_behind(start: StreamOffset, catalogue: Catalogue) -> bool:
    """Whether what was seen ends before `start`, which may be because who was asked lags."""
    bounds = partitions_of(catalogue)
    return any(
        name in bounds
        and start.logs[name.topic] == catalogue[name.topic].topic_id
        and bounds[name].end < offset
        for name, offset in start.to.items()
    )


def refuse_losses(start: StreamOffset, catalogue: Catalogue) -> None:
    """Raise DataLoss if a query that has come to `start` misses something; SourceTopicDeleted if
    that is a topic.
    """
    lost = "; ".join(losses(start, catalogue))
    for topic, log_id in sorted(start.logs.items()):
        found = catalogue.get(topic)
        if lost and (found is None or found.topic_id != log_id):
            raise SourceTopicDeleted(topic, f"{lost} ({REMEDY})")
    if lost:
        raise DataLoss(f"{lost} ({REMEDY})")


def advance(
    start: StreamOffset,
    catalogue: Catalogue,
    stops: Offsets,
    *,
    most: int | None = None,
    most_bytes: int | None = None,
) -> StreamOffset:
    """The next offset: everything there is, up to `stops` where a partition has one, and at most
    `most` offsets and about `most_bytes`. Partitions that `start` does not know begin at their
    log's start.
    """
    bounds = partitions_of(catalogue)
    begin = {
        name: held.start for name, held in bounds.items() if not _goes_on(start, catalogue, name)
    }
    begins = {name: begin.get(name, start.to.get(name, 0)) for name in bounds}
    ends = {
        name: max(begins[name], min(held.end, stops.get(name, held.end)))
        for name, held in bounds.items()
    }
    limited = ends if most is None else limit_ends(begins, ends, most)
    if most_bytes is not None:
        limited = limit_ends(begins, limited, _fitting(begins, limited, bounds, most_bytes))
    return StreamOffset(ids_of(catalogue), limited, begin)


def _fitting(
    begins: Offsets, ends: Offsets, bounds: Mapping[PartitionName, OffsetBounds], most_bytes: int
) -> int:
    """About how many of the offsets between fit into so many bytes; at least one."""
    sizes = {name: ends[name] - begins[name] for name in ends}
    total = sum(
        size * (bounds[name].record_bytes or UNKNOWN_RECORD_BYTES) for name, size in sizes.items()
    )
    return max(1, int(sum(sizes.values()) * most_bytes / total)) if total else 1


def _goes_on(start: StreamOffset, catalogue: Catalogue, name: PartitionName) -> bool:
    is_same = start.logs.get(name.topic) == catalogue[name.topic].topic_id
    return is_same and name in start.to


def is_idle(start: StreamOffset, end: StreamOffset) -> bool:
    """Whether there is nothing new."""
    return (start.logs, start.to) == (end.logs, end.to)


def count(start: StreamOffset, end: StreamOffset) -> int:
    """How many offsets lie between."""
    return sum(
        offset - end.begin.get(name, start.to.get(name, offset)) for name, offset in end.to.items()
    )


def clamp(ranges: Iterable[OffsetRange], catalogue: Catalogue) -> list[OffsetRange]:
    """What is left of the ranges: of the same logs, and not archived."""
    bounds = partitions_of(catalogue)
    kept = []
    for each in ranges:
        topic = catalogue.get(each.name.topic)
        if topic is None or topic.topic_id != each.topic_id or each.name not in bounds:
            continue
        left = each._replace(start=max(each.start, bounds[each.name].start))
        if left.start < left.end:
            kept.append(left)
    return kept
