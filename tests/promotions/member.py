"""One member of a cluster that has sites, as far as promotions go: a real Raft core and a real
state machine, a disk that keeps what was saved, and the files that say which cluster it is of.

Invariant: a crash takes what was not saved, and nothing else.
"""

from __future__ import annotations

import random
from typing import Any, cast

import msgspec

from samelog.admin.site_answers import Standing
from samelog.consensus import Effects, Entry, HardState, Raft, RaftConfig, Role, Snapshot
from samelog.consensus.messages import RaftMessage
from samelog.placement import operations
from samelog.placement.changes import apply_change
from samelog.sequencer.cluster import node_dir
from samelog.sequencer.cluster.node_dir import (
    FORMAT_VERSION,
    NodeRecord,
    read_record,
    write_record,
)
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.raft.alone import Held, goes_on
from samelog.sequencer.raft.replica import SnapshotBody
from samelog.sequencer.sites.agreeing import Agreement
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sites import PromoteSiteCommand
from tests.promotions.memory_files import MemoryFiles

CONFIG = RaftConfig()
DIRECTORY = "node"
RECORD, MERGE = b"record ", b"merge "


def name_of(merge: Any) -> bytes:
    """The one record of an instruction: of which producer or session, and its number."""
    if merge.sequences:
        return RECORD + b"producer %d %d" % (
            merge.sequences[0].producer_id,
            merge.sequences[0].first,
        )
    return RECORD + b"session %d %d" % (merge.ranges[0].input, merge.ranges[0].start)


class Body(msgspec.Struct, frozen=True):
    """What a snapshot holds here."""

    state: bytes
    records: list[bytes]


class Member:
    """`up`: its process runs; `told`: of a promotion without it, since when."""

    def __init__(
        self, number: int, site: str, base: StateMachine, voters: list[int], learners: list[int]
    ) -> None:
        self.number, self.site = number, site
        self.files = MemoryFiles()
        self._base = base.encode()
        self._founders = voters, learners
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []
        self.hard_state = HardState(0, None, 0)
        self.up = False
        self.is_lost = False
        """For good."""
        self.told: float | None = None
        self.raft: Raft
        self.machine: StateMachine
        self.records: list[bytes] = []
        self.agreement = Agreement()
        self.life: OwnLife
        self.cluster_id = base.state.members.cluster_id
        """As its directory has it: only between two lives is it another one."""
        name, cluster_id = f"n{number}", self.cluster_id
        record = NodeRecord(FORMAT_VERSION, "c", name, 1, number, cluster_id=cluster_id)
        write_record(cast(Any, self.files), DIRECTORY, record)

    def start(self, now: float, chance: random.Random) -> None:
        """Begin a life with what is on the disk. Raises NodeDirectoryError if it is of before."""
        node_dir.check_not_superseded(cast(Any, self.files), DIRECTORY)
        self.cluster_id = read_record(cast(Any, self.files), DIRECTORY).cluster_id
        voters, learners = self._founders
        self.raft = Raft(
            self.number,
            voters,
            learners=learners,
            config=CONFIG,
            random=random.Random(chance.getrandbits(32)),
            now=now,
            snapshot=self.snapshot,
            entries=self.entries,
            hard_state=self.hard_state,
        )
        self.machine, self.records = StateMachine.decode(self._base), []
        if self.snapshot is not None:
            self._install(self.snapshot)
        self.agreement, self.told = Agreement(), None
        self.life = OwnLife(cast(Any, None), cast(Any, self), self.machine)
        self.up = True

    def pump(self) -> None:
        """See OwnLife: what the core wants is carried out in the next step."""

    def stop(self) -> None:
        self.up = False

    def _install(self, snapshot: Snapshot) -> None:
        body = msgspec.msgpack.decode(snapshot.data, type=Body)
        found = msgspec.msgpack.decode(body.state, type=SnapshotBody)
        self.machine, self.records = StateMachine.decode(found.state), list(body.records)

    # --- Raft -------------------------------------------------------------------------------------

    def _apply(self, data: bytes) -> None:
        """An entry is committed, or taken as that: a record, or an instruction that may not hold
        any more.
        """
        if data.startswith(RECORD):
            self.records.append(data)
        elif data.startswith(MERGE):
            (merge,) = decode_commands(data[len(MERGE) :])
            if not isinstance(self.machine.apply(merge), Rejection):
                self.records.append(name_of(merge))

    def carry_out(self, effects: Effects) -> list[tuple[int, RaftMessage]]:
        """Save, apply: what is to be sent."""
        if effects.snapshot is not None:
            self.snapshot, self.entries = effects.snapshot, []
            self._install(effects.snapshot)
            self.life = OwnLife(cast(Any, None), cast(Any, self), self.machine)
        if effects.entries:
            first = effects.entries[0].index
            self.entries = [each for each in self.entries if each.index < first]
            self.entries += effects.entries
        if effects.hard_state is not None:
            self.hard_state = effects.hard_state
        self.raft.saved(effects.token)
        for each in effects.apply:
            self._apply(each.data)
        return [*effects.send, *effects.send_after_save]

    @property
    def leads(self) -> bool:
        return self.up and self.raft.role is Role.LEADER

    @property
    def newest(self) -> tuple[int, int]:
        """Term and index of its newest entry, on the disk if it is down."""
        if self.entries:
            return self.entries[-1].term, self.entries[-1].index
        return (self.snapshot.last_term, self.snapshot.last_index) if self.snapshot else (0, 0)

    @property
    def snapshot_records(self) -> list[bytes]:
        """Those of its snapshot."""
        if self.snapshot is None:
            return []
        return list(msgspec.msgpack.decode(self.snapshot.data, type=Body).records)

    # --- promotion --------------------------------------------------------------------------------

    def standing(self, now: float, reached: list[int], mates: list[int]) -> Standing:
        """As `samelog.sequencer.admin.siting.promoting` has it."""
        raft = self.raft
        return Standing(
            f"n{self.number}",
            self.site,
            self.cluster_id,
            self.leads,
            raft.leader_silent_s(now),
            raft.last_index,
            raft.log.term_at(raft.last_index) or 0,
            raft.commit_index,
            tuple(f"n{each}" for each in reached),
            tuple(f"n{each}" for each in mates),
            tuple(f"n{each}" for each in raft.voters),
            (),
            (),
        )

    def begin_anew(self, promotion: str, others: list[int]) -> None:
        """As `samelog.sequencer.recovery` does: behind all that it has, committed or not."""
        raft = self.raft
        behind = raft.log.entries(raft.applied_index + 1, raft.last_index + 1)
        for each in behind:
            self._apply(each.data)
        records = list(self.records)
        term = raft.log.term_at(raft.last_index) or 0
        state = self.machine.state
        state.members.by_number = {
            n: each for n, each in state.members.by_number.items() if n in (self.number, *others)
        }
        place = self.number, raft.last_index, term
        done = self.machine.apply(PromoteSiteCommand(self.site, promotion, *place, 1, "lost"))
        if isinstance(done, Rejection):
            raise AssertionError(done.message)
        for change in operations.go_on_with_readers(
            state.placement, state.members.by_number, self.number
        ):
            apply_change(state.placement, change)
        held = Held(self.machine, [], raft.last_index, term, raft.term, raft.commit_index)
        effects = goes_on(held, self.number, others)
        if effects.snapshot is None or effects.hard_state is None:
            raise AssertionError("it goes on from a snapshot")
        body = msgspec.msgpack.encode(Body(effects.snapshot.data, records))
        self.snapshot = Snapshot(
            effects.snapshot.last_index,
            effects.snapshot.last_term,
            effects.snapshot.voters,
            effects.snapshot.learners,
            body,
        )
        self.entries, self.hard_state = [], effects.hard_state
        self._founders = [], []
        known = read_record(cast(Any, self.files), DIRECTORY)
        self.cluster_id = self.machine.state.members.cluster_id
        record = msgspec.structs.replace(known, cluster_id=self.cluster_id)
        write_record(cast(Any, self.files), DIRECTORY, record)
