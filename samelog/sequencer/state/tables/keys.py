"""What is replicated of topics whose keys count once: from where on keys count, and the digests of
the index that a majority agrees on (docs/keys.md).

Invariant: a floor never falls; a block's digest, once agreed, never changes. Of a block with void
records none is agreed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import VoidRecordsCommand


class TellKeys(Command, frozen=True, tag=101):
    """A member's digest of a block of a partition's index, told to the voters of its group."""

    partition: Unsigned32
    block: int
    member: Unsigned32
    digest: int
    voters: list[Unsigned32]


DEDUP_KEY, DEDUP_KEY_HORIZON = "dedup.key", "dedup.key.horizon"

FIRST, NONE, UNLIMITED = "first", "none", "unlimited"

BLOCK_RECORDS = 1 << 16
MARKS = 64
"""A time horizon is counted in steps of a 64th of it."""
_HORIZON = re.compile(r"([1-9][0-9]{0,17})(ms|s|m|h|d)?", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Horizon(NamedTuple):
    """How long keys count; None: not limited by that."""

    records: int | None = None
    ms: int | None = None


def parse_horizon(text: str) -> Horizon:
    """`unlimited`, `1000000` records, or a time as `7d`. Raises ValueError."""
    if text == UNLIMITED:
        return Horizon()
    found = _HORIZON.fullmatch(text)
    if found is None:
        raise ValueError("is not unlimited, a number of records as 1000000, or a time as 7d")
    count, unit = int(found[1]), found[2]
    return Horizon(ms=count * _UNITS_MS[unit]) if unit else Horizon(records=count)


def horizon_of(settings: Mapping[str, str]) -> Horizon:
    """A topic's."""
    return parse_horizon(settings.get(DEDUP_KEY_HORIZON, UNLIMITED))


def has_keys(settings: Mapping[str, str]) -> bool:
    """Whether keys of a topic count once."""
    return settings.get(DEDUP_KEY) == FIRST


def problem_with_keys(before: Mapping[str, str] | None, settings: Mapping[str, str]) -> str | None:
    """Why a topic cannot have these settings; None: it can. `before`: None if it is made now."""
    if before is not None and before.get(DEDUP_KEY, NONE) != settings.get(DEDUP_KEY, NONE):
        return f"{DEDUP_KEY} is chosen when a topic is made, and stays"
    if has_keys(settings) and is_compacted(settings.get(CLEANUP_POLICY, "")):
        return f"{DEDUP_KEY}={FIRST} keeps the first record of a key, compaction the last"
    return None


def blocks_between(base: int, stop: int) -> range:
    """The blocks with records from offset `base` to below `stop`. Of records that were given up,
    who had them has another digest than who had not.
    """
    return range(base // BLOCK_RECORDS, -(-stop // BLOCK_RECORDS))


class KeyedPartition(msgspec.Struct):
    """Of one partition whose keys count once."""

    floor: int = 0
    """Keys of records below it do not count any more."""
    marks: list[tuple[int, int]] = []
    """(offset, append time in ms): from there on, nothing was appended earlier. Oldest first. The
    first one is at the floor: when older records were appended, nobody noted.
    """
    told: dict[int, dict[int, int]] = {}
    """Block -> member -> the digest that it told, where there is no majority yet."""
    agreed: dict[int, int] = {}
    """Block -> digest."""
    step_ms: int = 0
    """Behind the newest mark nothing was appended later than so long after it."""
    wide_ms: int = 0
    wide_below: int = 0
    """The same of marks below an offset, which are from when the horizon was longer."""

    def merged(self, base: int, stop: int, append_ms: int, settings: Mapping[str, str]) -> None:
        """An instruction is applied, that appends from offset `base` to below `stop`."""
        horizon = horizon_of(settings)
        if horizon.records is not None:
            self.floor = max(self.floor, stop - horizon.records)
        if horizon.ms is None:
            self.marks, self.step_ms, self.wide_ms, self.wide_below = [], 0, 0, 0
            return
        self._step(max(1, horizon.ms // MARKS))
        if not self.marks or append_ms - self.marks[-1][1] >= self.step_ms:
            self.marks.append((base if self.marks else self.floor, append_ms))
        while self._newest_behind_first() <= append_ms - horizon.ms:  # none of them counts
            del self.marks[0]
        self.floor = max(self.floor, self.marks[0][0])

    def floor_at(self, now_ms: int, next_offset: int, settings: Mapping[str, str]) -> int:
        """Return the floor at a time, which moves without instructions, too. Records that are
        proposed and not applied, from `next_offset` on, are above it.
        """
        if not self.marks or horizon_of(settings).ms is None:
            return self.floor
        marks = list(self.marks)
        now = KeyedPartition(self.floor, marks, {}, {}, self.step_ms, self.wide_ms, self.wide_below)
        now.merged(next_offset, next_offset, now_ms, settings)
        return now.floor

    def _step(self, step_ms: int) -> None:
        """Marks are so far apart from now on."""
        if self.marks and step_ms < self.step_ms:
            self.wide_ms, self.wide_below = max(self.wide_ms, self.step_ms), self.marks[-1][0] + 1
        self.step_ms = step_ms

    def _newest_behind_first(self) -> int:
        """When the newest of the records behind the first mark was appended, at latest."""
        offset, at_ms = self.marks[0]
        if offset >= self.wide_below:
            self.wide_ms = 0
        latest = at_ms + max(self.step_ms, self.wide_ms)
        return latest if len(self.marks) == 1 else min(latest, self.marks[1][1])

    def forget(self, base: int, stop: int) -> None:
        """Records were given up: digests of their blocks, told or agreed, count no more."""
        for block in blocks_between(base, stop):
            self.told.pop(block, None)
            self.agreed.pop(block, None)

    def tell(self, command: TellKeys) -> None:
        """Count what a member tells, until a majority of the voters tells the same."""
        if command.block in self.agreed:
            return
        told = self.told.setdefault(command.block, {})
        told[command.member] = command.digest
        alike = sum(told.get(voter) == command.digest for voter in command.voters)
        if alike * 2 > len(command.voters):
            self.agreed[command.block] = command.digest
            del self.told[command.block]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeyedPartition)


class KeysTable(msgspec.Struct):
    """The partitions of topics whose keys count once."""

    by_partition: dict[int, KeyedPartition] = {}

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        for number in numbers:
            self.by_partition.pop(number, None)

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. An empty log has no keys."""
        for old, number in moved.items():
            if self.by_partition.pop(old, None) is not None:
                self.by_partition[number] = KeyedPartition()

    def export(self, number: int) -> bytes:
        """See PartitionTable. What members told of their own indexes stays behind."""
        keyed = self.by_partition.get(number)
        return b"" if keyed is None else _encoder.encode(replace(keyed, told={}))

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        if exported:
            self.by_partition[number] = _decoder.decode(exported)

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable. Digests of blocks with such records, told or agreed, do not count."""
        if (keyed := self.by_partition.get(command.partition)) is not None:
            keyed.forget(command.base_offset, command.next_offset)

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: a key is no producer."""
