"""Continues a group with one replica, whose Raft log restarts behind all entries that it holds.

For groups that have lost their majority for ever. The replica's entries are treated as committed,
whether they were or not; entries that only the other replicas had are lost.

Invariant: the new log starts with a snapshot of a term that no lost replica can have had, at an
index that none of them has, so that none continues from an older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from samelog.consensus import Effects, Entry, HardState, Snapshot
from samelog.sequencer.raft.entry_bytes import merges_of
from samelog.sequencer.raft.replica import SnapshotBody, read_body
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine

TERM_STEP = 1000
"""The new life's terms are so far above what this replica knew that no lost one can have had them.
"""


@dataclass(frozen=True, slots=True)
class Held:
    """All that a replica holds: its state with every entry of its log, the instructions that wait
    to be executed, and its newest entry.
    """

    machine: StateMachine
    pending: list[Merge]
    last_index: int
    last_term: int
    term: int
    committed: int

    @property
    def place(self) -> str:
        """Up to where it goes, for a sentence."""
        text = f"entry {self.last_index} of term {self.last_term}"
        return f"{text}, of which {self.committed} were known to be committed"

    @property
    def partitions(self) -> list[tuple[str, int, int]]:
        """(topic, partition, next offset); of those that are in another group nothing is here."""
        state = self.machine.state
        return [
            (state.topics.by_id[partition.topic_id].name, partition.index, partition.next_offset)
            for number, partition in state.partitions.by_number.items()
            if number not in state.placement.partitions
        ]


def held_by(store: RaftStore) -> Held:
    """What is in a replica's files. Raises OtherVersion."""
    machine, pending = read_body(store.snapshot.data if store.snapshot else b"")
    waiting: dict[int, list[Merge]] = {}
    for merge in pending:
        waiting.setdefault(merge.partition, []).append(merge)
    index, term = store.applied_index, store.snapshot.last_term if store.snapshot else 0
    for entry in store.entries:
        if entry.index > index:
            index, term = entry.index, entry.term
            _replay(machine, waiting, entry.data)
    state = store.hard_state
    committed = max(state.commit, store.applied_index)
    pending = [*chain.from_iterable(waiting.values())]
    return Held(machine, pending, index, term, max(state.term, term), committed)


def _replay(machine: StateMachine, waiting: dict[int, list[Merge]], data: bytes) -> None:
    """Apply one entry, and keep what waits after it, by partition: nothing for one that is gone,
    as after a reset, or that went to another group.
    """
    for command in decode_commands(data):
        outcome = machine.apply(command)
        if not isinstance(outcome, Rejection):
            for merge in merges_of(command):
                waiting.setdefault(merge.partition, []).append(merge)
        if not isinstance(command, Merge):
            for number in [
                each for each in waiting if each not in machine.state.partitions.by_number
            ]:
                del waiting[number]


def goes_on(held: Held, voter: int, learners: Sequence[int] = ()) -> Effects:
    """What to write so that the replica goes on as the only voter, with its state as it is now."""
    index, term = held.last_index + 1, held.term + TERM_STEP
    body = msgspec.msgpack.encode(SnapshotBody(held.machine.encode(), held.pending))
    snapshot = Snapshot(index, term, (voter,), tuple(learners), body)
    return saved(snapshot, HardState(term, None, index))


def saved(snapshot: Snapshot | None, state: HardState, entries: Sequence[Entry] = ()) -> Effects:
    """To be written by a RaftStore."""
    return Effects(
        send=[],
        snapshot=snapshot,
        entries=list(entries),
        hard_state=state,
        must_sync=True,
        token=0,
        send_after_save=[],
        apply=[],
        reads=[],
        role_changed=False,
    )
