"""How much of what there is goes into one micro-batch, and into which tasks.

Pure arithmetic on ranges. Invariant: limits are never exceeded, and something is read whenever
something is allowed to be; cutting and packing neither lose nor repeat an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from samelog.spark.plan.offsets import OffsetRange, Offsets

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
