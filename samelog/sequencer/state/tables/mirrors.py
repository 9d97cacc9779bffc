"""Mirrors of topics of other clusters: of what each is one, and how far it is (docs/mirror.md).

The instruction that appends to one is a `Merge` whose `extras` say what is mirrored. Group 0 has
what concerns whole topics, and positions of consumer groups; the group of a partition has how far
that is mirrored, and moves it with the partition.

Invariant: a partition is in `places` of its group until that has ended its mirroring, and never
again. What is in `places` is of the bytes that instructions have named up to the partition's next
offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import (
    End,
    Merge,
    Mirrored,
    Sequence5,
    VoidRecordsCommand,
)
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.producers import remember


class MirrorGap(Command, frozen=True, tag=126):
    """The source has nothing from `base_offset`, where the mirror ends, up to `next_offset`. An
    empty mirror begins there (perhaps where it ends, too), with `checksum` as running checksum
    (None: not known), and readers begin at `log_start`. Of any other one these offsets become void;
    `text` says why.
    """

    partition: Unsigned32
    base_offset: int
    next_offset: int
    log_start: int
    checksum: int | None
    at_ms: int
    text: str


class PromoteMirrors(Command, frozen=True, tag=128):
    """In group 0: promote these topics, all at once. In the group of a partition: nothing is
    mirrored into it behind this entry, and transactions that are open in it are aborted.
    """

    topic_ids: list[str]
    at_ms: int
    by: str


class MirrorState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What group 0 must know of one partition: how far its leader epochs are above the terms of its
    group, and where its mirroring ended (None: it continues).
    """

    partition: Unsigned32
    epoch_base: int
    end: int | None


class TellMirrors(Command, frozen=True, tag=138):
    """In group 0: what a data group says of partitions that are mirrored, or were."""

    states: list[MirrorState]


class FollowSource(Command, frozen=True, tag=129):
    """What the source knows of its topics beside the bytes: positions of consumer groups, and from
    which offsets on (in each partition) versions of the schema are in force.
    """

    positions: list[tuple[str, list[tuple[Unsigned32, CommittedOffset]]]]
    since: list[tuple[Unsigned32, list[tuple[int, int]]]]


MirrorCommand = MirrorGap | PromoteMirrors | TellMirrors | FollowSource

OWED_NUMBER = 0
"""Transactions count from 1: this is none that began here."""
PRODUCERS_MOST = 1000
"""Of one partition; those that were silent for longest are forgotten."""


class MirrorPlace(msgspec.Struct):
    """What is known of one mirrored partition, at its next offset."""

    crc: int | None = None
    """Of the last batch; None: there is none."""
    checksum: int | None = 0
    """The running checksum; None: offsets are void here that the source has not, or epochs differ.
    """
    top_epoch: int = -1
    """The highest leader epoch that was mirrored."""
    open: dict[int, tuple[int, int]] = {}
    """Producer id -> (epoch, first offset) of its open transaction."""
    behind: int | None = None
    """Where the batch ends that `crc` is of, if all behind it is void; None: at the next offset."""
    producers: dict[int, list[Sequence5]] = {}
    """Producer id -> its newest batches, the one that came last behind the others. They count once
    it is a mirror no more: its producers, and twins, go on here then.
    """

    def take(self, merge: Merge, mirrored: Mirrored) -> None:
        """An instruction is applied."""
        if any(part.records for part in merge.ranges):
            self.crc, self.checksum, self.behind = mirrored.crc, mirrored.checksum, None
        self.top_epoch = max(self.top_epoch, mirrored.top_epoch)
        for sequence in merge.sequences:
            self._remember(sequence)
        for producer_id in mirrored.ends:
            self.open.pop(producer_id, None)
        for producer_id, epoch, offset in mirrored.begins:
            self.open[producer_id] = epoch, offset

    def _remember(self, sequence: Sequence5) -> None:
        known = self.producers.pop(sequence.producer_id, [])
        remember(known, sequence)
        self.producers[sequence.producer_id] = known
        if len(self.producers) > PRODUCERS_MOST:
            del self.producers[next(iter(self.producers))]


class Mirror(msgspec.Struct):
    """One topic that is, or was, a mirror."""

    source: MirrorSource
    since_ms: int
    promoted_ms: int = -1
    """-1: it is a mirror. A data group keeps that: it goes by `places`."""
    ends: list[int] = []
    """Once promoted: up to which offset each partition is the source's."""


class MirrorPromotion(msgspec.Struct):
    """In group 0: these topics are promoted, all at once, when all their partitions have ended."""

    topic_ids: list[str]
    at_ms: int
    by: str
    ends: dict[int, int] = {}
    """Partition -> where its mirroring ended, of those whose groups have said so."""


class _MovedMirror(msgspec.Struct, frozen=True, array_like=True):
    """What moves with a partition."""

    place: MirrorPlace | None
    end: int | None
    owed: list[tuple[int, int, int]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_MovedMirror)


class MirrorsTable(msgspec.Struct):
    """All of them."""

    topics: dict[str, Mirror] = {}
    """By topic id."""
    places: dict[int, MirrorPlace] = {}
    """By partition of this group, of those that are mirrored."""
    ended: dict[int, int] = {}
    """Partition of this group -> where its mirroring ended: what its sidecar still brings counts no
    more.
    """
    owed: dict[int, list[tuple[int, int, int]]] = {}
    """Partition -> (producer id, epoch, first offset) of transactions that promotion aborts: their
    markers are yet to be merged.
    """
    positions: dict[str, dict[int, int]] = {}
    """In group 0: consumer group -> partition -> commit time at the source of the position that was
    copied last. Later commits at this cluster are the consumer group's own.
    """
    promotions: list[MirrorPromotion] = []
    """In group 0: those that are under way."""

    def of_topic(self, topic_id: str) -> Mirror | None:
        """What a topic is a mirror of, if it is one now."""
        known = self.topics.get(topic_id)
        return None if known is None or known.promoted_ms >= 0 else known

    def promotion_of(self, topic_id: str) -> MirrorPromotion | None:
        """The promotion under way that a topic is part of."""
        return next((each for each in self.promotions if topic_id in each.topic_ids), None)

    def ends_since(self, topic_id: str) -> int | None:
        """When the end of a topic's mirroring was decided, None if it was not."""
        known, promotion = self.topics.get(topic_id), self.promotion_of(topic_id)
        if promotion is not None:
            return promotion.at_ms
        return None if known is None or known.promoted_ms < 0 else known.promoted_ms

    def first_open(self, number: int) -> int | None:
        """Where the oldest open transaction of the source begins in a partition."""
        place, owed = self.places.get(number), self.owed.get(number, ())
        found = [] if place is None else [first for _, first in place.open.values()]
        return min((*found, *(first for _, _, first in owed)), default=None)

    def problem_with_ends(self, number: int, ends: Iterable[End]) -> str | None:
        """Why markers that a promotion owes cannot be merged: they are there."""
        owed = {each[0] for each in self.owed.get(number, ())}
        for end in ends:
            if end.number == OWED_NUMBER and end.producer_id not in owed:
                return f"no marker of producer {end.producer_id} is owed"
        return None

    def settle(self, number: int, ends: Iterable[End]) -> set[int]:
        """Forget markers that a promotion owed and that are merged; return their producers."""
        done = {end.producer_id for end in ends if end.number == OWED_NUMBER}
        if done:
            self.owed[number] = [each for each in self.owed[number] if each[0] not in done]
            if not self.owed[number]:
                del self.owed[number]
        return done

    def owed_ends(self) -> dict[int, list[End]]:
        """The markers that promotions owe, by partition."""
        return {
            number: [End(each[0], each[1], OWED_NUMBER, is_commit=False) for each in owed]
            for number, owed in self.owed.items()
        }

    def begin(self, topic_id: str, mirror: Mirror, numbers: Iterable[int]) -> None:
        """Partitions of this group, which are empty, are mirrored from now on."""
        self.topics.setdefault(topic_id, mirror)
        for number in numbers:
            self.places[number] = MirrorPlace()

    def end(self, number: int, next_offset: int) -> MirrorPlace:
        """Nothing is mirrored into a partition any more; return what was known of it."""
        place = self.places.pop(number)
        self.ended[number] = next_offset
        if place.open:
            self.owed[number] = [(each, *opened) for each, opened in place.open.items()]
        return place

    def forget(self, gone: Collection[int], topic_id: str) -> None:
        """A topic is deleted, with these partitions."""
        self.topics.pop(topic_id, None)
        self.forget_positions(gone)

    def forget_positions(self, gone: Collection[int]) -> None:
        """Consumer groups' positions in these partitions were not copied, but their own."""
        for copied in self.positions.values():
            for number in gone:
                copied.pop(number, None)

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable: positions are known until the topic is deleted."""
        for number in numbers:
            self.places.pop(number, None)
            self.ended.pop(number, None)
            self.owed.pop(number, None)

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. A mirror begins again; one that had ended has no record of it."""
        mirrored = [number for number in self.places if number in moved]
        ended = [number for number in self.ended if number in moved]
        self.drop(moved)
        self.places |= {moved[number]: MirrorPlace() for number in mirrored}
        self.ended |= {moved[number]: 0 for number in ended}
        self.forget_positions(moved)

    def export(self, number: int) -> bytes:
        """See PartitionTable."""
        known = self.places.get(number), self.ended.get(number), self.owed.get(number, [])
        return _encoder.encode(_MovedMirror(*known))

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        known = _decoder.decode(exported)
        if known.place is not None:
            self.places[number] = known.place
        if known.end is not None:
            self.ended[number] = known.end
        if known.owed:
            self.owed[number] = known.owed

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: records of a mirror are not given up, its source has them."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: producers of a source are forgotten by their number."""
