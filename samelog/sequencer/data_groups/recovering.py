"""A data group that lost its majority for ever goes on with one replica that is left.

An operator names the replica; group 0 says so in its table. The member that has it restarts
the group's log, and the group's leader, which is that replica, confirms it.

Invariant: a replica goes on alone only by a table that was confirmed in this life, and only until
the group has confirmed that it goes on: files that come back later do not.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from samelog.format.errors import CorruptLog
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.sequencer.raft.alone import Held, goes_on, held_by
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.types import State
from samelog.store.disk.files import FileSystem
from samelog.store.merged.generations import read_compacted

EVENT = "majority-lost"
TEXT_MOST = 1000


def go_on_alone(
    fs: FileSystem,
    log: MemberLog,
    data: str,
    placed: PlacedGroup,
    own: PlacedReplica,
    *,
    name: str,
    wall_ms: int,
) -> bool:
    """Restart the log of a stopped replica, unless that is done; return whether it was not.
    `data`: where its files are; `name`: the member's. Raises RaftStoreError, OtherVersion.
    """
    store = RaftStore.open(fs, log, placed.number, own.replica)
    held = held_by(store)
    state = held.machine.state
    if state.placement.version >= placed.recovered:
        return False
    held.machine.apply(RecordEvent(wall_ms, EVENT, _possible_loss(held, placed.number, name)))
    state.placement.own = [replace(own, votes=True, is_whole=True)]
    state.placement.version = state.placement.recovered = placed.recovered
    state.placement.ends = _ends(state)
    keep_own_segments(fs, state, data)
    store.write(goes_on(held, own.member))
    log.sync()
    return True


def _possible_loss(held: Held, group: int, name: str) -> str:
    ends = ", ".join(f"{topic}-{index} at {offset}" for topic, index, offset in held.partitions)
    text = f"group {group} went on with the replica of {name} alone after {held.place}"
    loss = "What others acknowledged after that may be lost"
    return f"{text}. {loss}. Partitions: {ends or 'none'}"[:TEXT_MOST]


def _ends(state: State) -> dict[int, int]:
    """For group 0, which may have positions behind them."""
    return {number: each.next_offset for number, each in state.partitions.by_number.items()}


def keep_own_segments(fs: FileSystem, state: State, data: str) -> None:
    """Nobody is left to get compacted segments from: those that are here count. Raises
    RaftStoreError.
    """
    for partition in state.partitions.by_number.values():
        if partition.compacted is None:
            continue
        name = f"{state.topics.by_id[partition.topic_id].name}-{partition.index}"
        try:
            own = read_compacted(fs, os.path.join(data, "merged", name))
        except CorruptLog as error:
            raise RaftStoreError(str(error)) from error
        partition.compacted.keep(
            own.segments if own.copied is None else [*own.segments, own.copied]
        )
