"""Mirrors of topics of other clusters: of what each is one, and how far it is (docs/mirror.md).

The instruction that appends to one is a `Merge` whose `extras` say what is mirrored.

Invariant: a partition is in `places` exactly as long as its topic is a mirror. What is in `places`
is of the bytes that instructions have named up to the partition's next offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import End, Merge, Mirrored, Sequence5
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.producers import remember


class MirrorSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a mirror is of: a log of a topic of a cluster. `origins` are the ids of all clusters
    that its records were in before, the source last. `keeps_epochs`: the leader epochs in its
    batches mean something here (samelog's do, Kafka's do not).
    """

    cluster_id: str
    topic: str
    log_id: str
    origins: list[str]
    keeps_epochs: bool


class CreateMirror(Command, frozen=True, tag=125):
    """Bind a new topic id to a name that no living topic has: as a mirror."""

    topic_id: str
    name: str
    partitions: Unsigned32
    settings: dict[str, str]
    at_ms: int
    source: MirrorSource


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
    """These topics are mirrors no more, all at once: whoever may publish to them may from now on.
    Transactions that are open in them are aborted.
    """

    topic_ids: list[str]
    at_ms: int
    by: str


class FollowSource(Command, frozen=True, tag=129):
    """What the source knows of its topics beside the bytes: positions of consumer groups, and from
    which offsets on (in each partition) versions of the schema are in force.
    """

    positions: list[tuple[str, list[tuple[Unsigned32, CommittedOffset]]]]
    since: list[tuple[Unsigned32, list[tuple[int, int]]]]


MirrorCommand = CreateMirror | MirrorGap | PromoteMirrors | FollowSource

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
    """-1: it is a mirror."""
    ends: list[int] = []
    """Once promoted: up to which offset each partition is the source's."""


class MirrorsTable(msgspec.Struct):
    """All of them."""

    topics: dict[str, Mirror] = {}
    """By topic id."""
    places: dict[int, MirrorPlace] = {}
    """By partition, of mirrors that are not promoted."""
    promoted: list[int] = []
    """Partitions that were of mirrors: what their sidecars still bring counts no more."""
    owed: dict[int, list[tuple[int, int, int]]] = {}
    """Partition -> (producer id, epoch, first offset) of transactions that promotion aborts: their
    markers are yet to be merged.
    """
    positions: dict[str, dict[int, int]] = {}
    """Group -> partition -> when what was copied last was committed at the source. Whatever was
    committed here since is the group's own."""

    def of_topic(self, topic_id: str) -> Mirror | None:
        """What a topic is a mirror of, if it is one now."""
        known = self.topics.get(topic_id)
        return None if known is None or known.promoted_ms >= 0 else known

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

    def follow(self, topic_id: str, numbers: Iterable[int]) -> None:
        """A topic has these partitions."""
        known = self.of_topic(topic_id)
        for number in numbers if known is not None else ():
            self.places.setdefault(number, MirrorPlace())

    def forget(self, gone: Iterable[int], topic_id: str = "") -> None:
        """Partitions are gone, and their topic with them."""
        self.topics.pop(topic_id, None)
        left = set(gone)
        self.promoted = [number for number in self.promoted if number not in left]
        for number in left:
            self.places.pop(number, None)
            self.owed.pop(number, None)
            for copied in self.positions.values():
                copied.pop(number, None)

    def begin_anew(self, moved: Mapping[int, int]) -> None:
        """All logs are empty again, and their partitions have other numbers."""
        self.places = {moved[number]: MirrorPlace() for number in self.places}
        self.promoted = [moved[number] for number in self.promoted]
        self.owed, self.positions = {}, {}
