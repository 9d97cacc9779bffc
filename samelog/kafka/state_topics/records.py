"""What the records of `__consumer_offsets` and `__transaction_state` hold, in Kafka's schemas:
OffsetCommitKey and -Value, GroupMetadataKey and -Value, TransactionLogKey and -Value, in versions
that every program reads which reads these topics.

Groups of the newer protocol are told of as those of the older are, without members.

Invariant: the same state gives the same bytes on every node.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.batch import MAX_RECORD_BYTES
from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables.feeds import ITSELF, Key, StateTopic, Tombstone
from samelog.sequencer.state.tables.groups import (
    ClassicMember,
    CommittedOffset,
    ConsumerGroupRecord,
)
from samelog.sequencer.state.tables.transactions import Transaction
from samelog.sequencer.state.types import State

_OFFSET_KEY, _GROUP_KEY, _TRANSACTION_KEY = 1, 2, 0
_OFFSET_VALUE = _GROUP_VALUE = 3
_TRANSACTION_VALUE = 0
_NO_LEADER_EPOCH = -1
_EPOCH_AT = 12
STATUSES = {
    "Empty": 0,
    "Ongoing": 1,
    "PrepareCommit": 2,
    "PrepareAbort": 3,
    "CompleteCommit": 4,
    "CompleteAbort": 5,
}
"""Kafka's numbers of where a transaction stands."""


class ToldRecord(NamedTuple):
    """A record; without a value, a tombstone."""

    key: bytes
    value: bytes | None
    at_ms: int

    def batch(self, offset: int) -> bytes:
        """A batch of its own: so what stands at an offset never depends on its neighbours."""
        data = bytearray(
            kernels.build_batches(
                [self.value],
                keys=[self.key],
                timestamps=self.at_ms,
                batch_bytes=MAX_RECORD_BYTES,
                max_record_bytes=MAX_RECORD_BYTES,
            )
        )
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">i", data, _EPOCH_AT, _NO_LEADER_EPOCH)
        return bytes(data)


def told(state: State, topic: StateTopic, key: Key) -> ToldRecord | None:
    """The record of something; None if there is no such thing."""
    name, number = key
    if topic is StateTopic.TRANSACTIONS:
        known = state.transactions.by_id.get(name)
        return None if known is None else _transaction(state, name, known)
    group = state.groups.by_id.get(name)
    if group is None:
        return None
    if number == ITSELF:
        return ToldRecord(_group_key(name), _group(group), group.since_ms)
    offset, place = group.offsets.get(number), place_of(state, number)
    if offset is None or place is None:
        return None
    topic_of, index = place
    return ToldRecord(_offset_key(name, topic_of.name, index), _offset(offset), offset.at_ms)


def time_of(state: State, topic: StateTopic, key: Key) -> int:
    """The timestamp of something's record; -1 if there is no such thing."""
    name, number = key
    if topic is StateTopic.TRANSACTIONS:
        known = state.transactions.by_id.get(name)
        return -1 if known is None else known.used_ms
    group = state.groups.by_id.get(name)
    if group is None or number == ITSELF:
        return -1 if group is None else group.since_ms
    offset = group.offsets.get(number)
    return -1 if offset is None else offset.at_ms


def tombstone(topic: StateTopic, gone: Tombstone) -> ToldRecord:
    """The record of what is gone."""
    if topic is StateTopic.TRANSACTIONS:
        key = _transaction_key(gone.name)
    elif gone.index < 0:
        key = _group_key(gone.name)
    else:
        key = _offset_key(gone.name, gone.topic, gone.index)
    return ToldRecord(key, None, gone.at_ms)


# --- groups ---------------------------------------------------------------------------------------


def _offset_key(group: str, topic: str, index: int) -> bytes:
    return _short(_OFFSET_KEY) + _text(group) + _text(topic) + _int(index)


def _offset(known: CommittedOffset) -> bytes:
    place = struct.pack(">hqi", _OFFSET_VALUE, known.offset, known.leader_epoch)
    return place + _text(known.metadata) + _long(known.at_ms)


def _group_key(group: str) -> bytes:
    return _short(_GROUP_KEY) + _text(group)


def _group(group: ConsumerGroupRecord) -> bytes:
    members = list(group.members.values())
    return b"".join(
        (
            _short(_GROUP_VALUE),
            _text(group.protocol_type),
            _int(group.generation),
            _text(group.protocol),
            _text(group.leader),
            _long(group.since_ms),
            _int(len(members)),
            *(_member(member, group.protocol) for member in members),
        )
    )


def _member(member: ClassicMember, protocol: str | None) -> bytes:
    subscription = next((data for name, data in member.protocols if name == protocol), b"")
    return b"".join(
        (
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(subscription),
            _bytes(member.assignment),
        )
    )


# --- transactions ---------------------------------------------------------------------------------


def _transaction_key(transactional_id: str) -> bytes:
    return _short(_TRANSACTION_KEY) + _text(transactional_id)


def _transaction(state: State, name: str, known: Transaction) -> ToldRecord:
    unit, status = known.unit, STATUSES[known.state_name]
    value = b"".join(
        (
            struct.pack(">hqh", _TRANSACTION_VALUE, known.producer_id, known.epoch),
            struct.pack(">ib", known.timeout_ms, status),
            _partitions(state, () if unit is None else unit.unfinished(), status),
            struct.pack(">qq", known.used_ms, -1 if unit is None else unit.began_ms),
        )
    )
    return ToldRecord(_transaction_key(name), value, known.used_ms)


def _partitions(state: State, numbers: Iterable[int], status: int) -> bytes:
    """The partitions that take part, by topic; none at all if there is no transaction."""
    if status == STATUSES["Empty"]:
        return _int(-1)
    topics: dict[str, list[int]] = {}
    for number in numbers:
        partition = state.partitions.by_number.get(number)
        if partition is not None:
            topics.setdefault(state.topics.by_id[partition.topic_id].name, []).append(
                partition.index
            )
    return _int(len(topics)) + b"".join(_of_topic(topics))


def _of_topic(topics: Mapping[str, list[int]]) -> Iterable[bytes]:
    for name in sorted(topics):
        yield _text(name) + _int(len(topics[name])) + b"".join(map(_int, sorted(topics[name])))


# --- Kafka's basic types --------------------------------------------------------------------------


def _short(value: int) -> bytes:
    return struct.pack(">h", value)


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _long(value: int) -> bytes:
    return struct.pack(">q", value)


def _text(value: str | None) -> bytes:
    if value is None:
        return _short(-1)
    data = value.encode()
    return _short(len(data)) + data


def _bytes(value: bytes) -> bytes:
    return _int(len(value)) + value
