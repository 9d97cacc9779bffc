"""The disaster tool for one stopped node: it makes its directory that of a cluster of its own.

For a cluster that has lost its majority for ever, and for one whose Raft log nobody can go on
with (a soft reset). Input positions, dedup state, output positions, topics and sessions are kept;
Raft's log, term and membership are replaced, the term far above the old one, so that merged bytes
of both lives can be told apart. Nodes of the old cluster learn that they are no members.

Invariant: nothing is deleted, what is replaced is set aside; a crash at any moment leaves either
the old directory, or the new one, or one that does not vote and says so.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from samelog.config.tables.node import NodeConfig
from samelog.consensus import Entry, HardState, Snapshot
from samelog.format.errors import DirectoryInUse
from samelog.placement.changes import RecoverGroup, apply_change
from samelog.placement.operations import go_on_with_readers
from samelog.sequencer.cluster.node_dir import (
    NodeDirectoryError,
    NodeRecord,
    SiteRecord,
    check_not_superseded,
    known_by_birth,
    read_record,
    write_record,
    write_sites,
)
from samelog.sequencer.data_groups.recovering import keep_own_segments
from samelog.sequencer.data_groups.seats import ReplicaRecord, SeatFile
from samelog.sequencer.levels import SUPPORTED, check_level
from samelog.sequencer.raft.alone import Held, goes_on, held_by, saved
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.raft_home import check_home, home_of, move, raft_path
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import Member, MemberLives
from samelog.sequencer.state.tables.sites import PromoteSiteCommand
from samelog.sequencer.state.types import State
from samelog.store.disk.files import File, FileSystem

VERSION_STEP = 1000
NUMBER_STEP = 4
"""Numbers that nodes may have been given that this one never heard of."""
NUMBERS_LEFT_OUT = 1 << 20
"""The same of partitions, inputs, groups, replicas, tasks and units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePromotion:
    """The promotion of a site; `promotion`: its random id, 16 hexadecimal digits."""

    site: str
    promotion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a stopped node's directory holds."""

    node: str
    number: int
    cluster: str
    last_index: int
    last_term: int
    term: int
    committed: int
    """Known here to be committed; entries behind it may or may not have been."""
    members: tuple[str, ...]
    partitions: tuple[tuple[str, int, int], ...]
    """(topic, partition, next offset)."""
    waiting: int
    """Merge instructions that are not executed here, or were not when the snapshot was taken."""
    replicas: tuple[FoundReplica, ...] = ()
    """Of data groups."""
    others: tuple[int, ...] = ()
    """Data groups of which nothing is here."""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """What the directory has of a data group; `entry` and `term` of its newest entry, `members`:
    who has a replica, as far as is known here.
    """

    group: int
    entry: int
    term: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Replica:
    """A data group's, as it is on the disk."""

    group: int
    record: ReplicaRecord
    snapshot: Snapshot | None
    state: HardState
    entries: tuple[Entry, ...]
    partitions: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Life:
    """Everything that goes on into the new life."""

    record: NodeRecord
    held: Held
    replicas: list[_Replica]
    finding: Finding

    @property
    def state(self) -> State:
        """Of group 0."""
        return self.held.machine.state


def look(fs: FileSystem, config: NodeConfig) -> Finding:
    """What there is; nothing is changed, but for what every start does to the log: a torn tail is
    cut, an older version's log carried over. Raises NodeDirectoryError if a node runs on the
    directory; RaftStoreError if its Raft files are damaged; OtherVersion if this build does not
    know what they hold.
    """
    lock = _lock(fs, config)
    try:
        return _read(fs, config).finding
    finally:
        lock.close()


def begin_anew(
    fs: FileSystem,
    config: NodeConfig,
    *,
    kind: str,
    wall_ms: int,
    others: Collection[str] = (),
    promotes: SitePromotion | None = None,
) -> tuple[Finding, str]:
    """Make the directory that of a cluster of one voter: what it held, and where the old Raft files
    are kept. `others`: names of members that stay, with what they have; `promotes`: what the
    node's site is promoted by. Raises as `look`, and NodeDirectoryError if one of them is none, or
    if another site was promoted without this node.
    """
    lock = _lock(fs, config)
    try:
        life = _read(fs, config)
        leave_event_numbers_out(life.state)
        check_not_superseded(fs, config.data)
        _check_names(life, config, others)
        if promotes is None:
            life.held.machine.apply(RecordEvent(wall_ms, kind, _possible_loss(life.finding)))
        _stand_alone(life, config, others)
        if promotes is not None:
            _promote(life, promotes, wall_ms)
        leave_numbers_out(life.state)
        _recover_groups(life)
        if promotes is not None:
            state = life.state
            for change in go_on_with_readers(
                state.placement, state.members.by_number, life.record.number
            ):
                apply_change(state.placement, change)
        try:
            keep_own_segments(fs, life.state, config.data)
        except RaftStoreError as error:
            raise NodeDirectoryError(str(error)) from error
        return life.finding, _write(fs, config, life, wall_ms)
    finally:
        lock.close()


def move_raft(fs: FileSystem, config: NodeConfig, *, wall_ms: int) -> tuple[str, str]:
    """Move the Raft files of a stopped node to where its configuration says: where they are now,
    and where the old ones are kept. Raises NodeDirectoryError, RaftStoreError, DiskFault.
    """
    lock = _lock(fs, config)
    try:
        check_not_superseded(fs, config.data)
        record = read_record(fs, config.data)
        return move(fs, config, record.made.directory_id, record.incarnation, wall_ms)
    finally:
        lock.close()


def _lock(fs: FileSystem, config: NodeConfig) -> File:
    if not fs.exists(os.path.join(config.data, "node.json")):
        raise NodeDirectoryError(f"{config.data} is no node's directory: it has no node.json")
    try:
        return fs.lock(os.path.join(config.data, "node.lock"))
    except DirectoryInUse as error:
        raise NodeDirectoryError(f"stop the node first: {error}") from error


def _read(fs: FileSystem, config: NodeConfig) -> _Life:
    record = read_record(fs, config.data)
    check_home(fs, config, record.made.directory_id)
    directory = raft_path(config)
    if not fs.exists(directory):
        raise NodeDirectoryError(
            f"{home_of(config)} has no directory raft: an earlier recovery was interrupted: the "
            "newest set-aside directory is it; rename that to raft, and begin again"
        )
    number = record.number
    log = MemberLog.open(fs, directory, cluster=config.cluster, node=number)
    try:
        held = held_by(RaftStore.open(fs, log))
        replicas = list(_replicas(fs, log))
    finally:
        log.close()
    state = held.machine.state
    check_level(state.members.level, SUPPORTED)
    here = {each.group for each in replicas}
    finding = Finding(
        node=config.name,
        number=number,
        cluster=config.cluster,
        last_index=held.last_index,
        last_term=held.last_term,
        term=held.term,
        committed=held.committed,
        members=tuple(member.name for member in state.members.by_number.values()),
        partitions=(*held.partitions, *_partitions_in(replicas)),
        waiting=len(held.pending),
        replicas=tuple(_found(each, state) for each in replicas),
        others=tuple(sorted(state.placement.groups.keys() - here)),
    )
    return _Life(record, held, replicas, finding)


def _replicas(fs: FileSystem, log: MemberLog) -> Iterator[_Replica]:
    """Those of data groups, also what is left of those that have ended. Raises RaftStoreError."""
    names = fs.list_directory(log.directory)
    for group in sorted(int(name) for name in names if name.isdecimal() and name != "0"):
        record = SeatFile(fs, log.directory, group).read()
        if record is None:
            continue
        store = RaftStore.open(fs, log, group, record.replica)
        entries = tuple(each for each in store.entries if each.index > store.applied_index)
        found = store.snapshot, store.hard_state, entries, tuple(held_by(store).partitions)
        yield _Replica(group, record, *found)


def _partitions_in(replicas: Sequence[_Replica]) -> Iterator[tuple[str, int, int]]:
    for each in replicas:
        if not each.record.is_ended:
            yield from each.partitions


def _found(replica: _Replica, state: State) -> FoundReplica:
    snapshot, group = replica.snapshot, state.placement.groups.get(replica.group)
    newest = (0, 0) if snapshot is None else (snapshot.last_index, snapshot.last_term)
    if replica.entries:
        newest = replica.entries[-1].index, replica.entries[-1].term
    known = () if group is None else map(state.members.by_number.get, group.everybody)
    return FoundReplica(replica.group, *newest, tuple(each.name for each in known if each))


def _possible_loss(finding: Finding) -> str:
    ends = ", ".join(f"{topic}-{index} at {offset}" for topic, index, offset in finding.partitions)
    return (
        f"{finding.node} went on alone after entry {finding.last_index} of term "
        f"{finding.last_term}, of which {finding.committed} were known to be committed. What the "
        f"others acknowledged after that may be lost. Partitions: {ends or 'none'}"
    )[:1000]


def _promote(life: _Life, promotes: SitePromotion, wall_ms: int) -> None:
    found, site = life.finding, promotes.site
    text = f"site {site!r} was promoted: {_possible_loss(found)}"[:1000]
    place = found.last_index, found.last_term
    done = PromoteSiteCommand(site, promotes.promotion, found.number, *place, wall_ms, text)
    outcome = life.held.machine.apply(done)
    if isinstance(outcome, Rejection):
        raise NodeDirectoryError(f"site {site!r} is not promoted: {outcome.message}")


def _check_names(life: _Life, config: NodeConfig, others: Collection[str]) -> None:
    known = {member.name for member in life.state.members.by_number.values()} - {config.name}
    if strangers := sorted(set(others) - known):
        text = f"{', '.join(strangers)}: no other member has that name"
        raise NodeDirectoryError(f"{text}; there are {', '.join(sorted(known)) or 'none'}")


def _stand_alone(life: _Life, config: NodeConfig, others: Collection[str]) -> None:
    """The member list of the new life: this node, and who stays, without a vote."""
    state, record = life.state, life.record
    known = {member.number: member for member in record.members} | state.members.by_number
    own = known.get(record.number)
    address = own.address if own is not None else str(config.advertise)
    identity = f"samelog://node/{config.name}"
    highest = max([state.members.next_number - 1, record.number, *known])
    stay = [each for each in state.members.by_number.values() if each.name in others]
    state.members.by_number = {
        record.number: Member(record.number, config.name, address, identity, voter=True)
    } | {each.number: msgspec.structs.replace(each, voter=False) for each in stay}
    state.members.version += VERSION_STEP
    state.members.next_number = highest + 1 + NUMBER_STEP
    started = {
        n: lives for n, lives in state.members.started.items() if n in state.members.by_number
    }
    state.members.started = started | {record.number: MemberLives(record.boot, record.incarnation)}


def leave_event_numbers_out(state: State) -> None:
    """Entries that are lost may have told of events, and a data group may have their records: it
    would take others with these numbers for duplicates. The event of the recovery is the first one
    behind them.
    """
    state.events.next_number += NUMBERS_LEFT_OUT


def leave_numbers_out(state: State) -> None:
    """Numbers that may have been given by entries that are lost are never given again: data groups,
    and members that stay, may have what has them. What has them is unknown, and not deleted.
    """
    table = state.placement
    leave_out = table.skipped.leave_out
    state.partitions.next_number = leave_out(
        "partition", state.partitions.next_number, NUMBERS_LEFT_OUT
    )
    state.sessions.next_input += NUMBERS_LEFT_OUT
    table.next_group = leave_out("group", table.next_group, NUMBERS_LEFT_OUT)
    table.next_replica = leave_out("replica", table.next_replica, NUMBERS_LEFT_OUT)
    table.next_task += NUMBERS_LEFT_OUT
    table.version += NUMBERS_LEFT_OUT
    state.stages.last += NUMBERS_LEFT_OUT
    for session in state.sessions.by_name.values():
        session.next_run = session.next_number + NUMBERS_LEFT_OUT
    for known in state.transactions.by_id.values():
        known.numbers_from = known.next_number + NUMBERS_LEFT_OUT


def _recover_groups(life: _Life) -> None:
    """Groups of which nobody else that stays has a replica go on with the one that is here, if they
    have lost their majority; of others an operator says which goes on.
    """
    state, own = life.state, life.record.number
    here = {each.group for each in life.replicas if not each.record.is_ended}
    for number, group in tuple(state.placement.groups.items()):
        left = [each for each in group.voters if each in state.members.by_number]
        if len(left) * 2 <= len(group.voters) and left == [own] and number in here:
            apply_change(state.placement, RecoverGroup(number, own))


def _write(fs: FileSystem, config: NodeConfig, life: _Life, wall_ms: int) -> str:
    data, record, finding = config.data, life.record, life.finding
    home = home_of(config)
    new = os.path.join(home, "raft.new")
    if fs.exists(new):
        fs.remove_tree(new)
    _write_raft(fs, new, life)
    aside = os.path.join(home, f"set-aside.raft.{wall_ms}")
    fenced = msgspec.structs.replace(record, suspicion="its recovery was interrupted", voters=[])
    write_record(fs, data, fenced)
    fs.rename(raft_path(config), aside)
    fs.rename(new, raft_path(config))
    fs.sync_directory(home)
    alone = msgspec.structs.replace(
        record,
        suspicion="",
        members=list(life.state.members.by_number.values()),
        members_version=life.state.members.version,
        voters=[finding.number],
        cluster_id=life.state.members.cluster_id or record.cluster_id,
    )
    write_record(fs, data, known_by_birth(fs, data, alone))
    write_sites(fs, data, SiteRecord())
    return aside


def _write_raft(fs: FileSystem, directory: str, life: _Life) -> None:
    """Raft files that begin with a snapshot of everything; replicas of data groups have what they
    had.
    """
    finding = life.finding
    log = MemberLog.open(fs, directory, cluster=finding.cluster, node=finding.number)
    learners = [each for each in life.state.members.by_number if each != finding.number]
    RaftStore.open(fs, log).write(goes_on(life.held, finding.number, learners))
    for each in life.replicas:
        SeatFile(fs, directory, each.group).write(each.record)
        store = RaftStore.open(fs, log, each.group, each.record.replica)
        store.write(saved(each.snapshot, each.state, each.entries))
    log.sync()
    log.close()
