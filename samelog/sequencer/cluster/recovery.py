"""The disaster tool for one stopped node: it makes its directory that of a cluster of its own.

For a cluster that has lost its majority for ever, and for one whose Raft log nobody can go on
with (a soft reset). Input positions, dedup state, output positions, topics and sessions are kept;
Raft's log, term and membership begin anew, the term far above the old one, so that merged bytes of
both lives can be told apart. Nodes of the old cluster are told that they are no members.

Invariant: nothing is deleted, what is replaced is set aside; a crash at any moment leaves either
the old directory, or the new one, or one that does not vote and says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from samelog.config.tables.node import NodeConfig
from samelog.consensus import Effects, HardState, Snapshot
from samelog.format.errors import CorruptLog, DirectoryInUse
from samelog.sequencer.cluster.node_dir import (
    NodeDirectoryError,
    NodeRecord,
    known_by_birth,
    read_record,
    write_record,
)
from samelog.sequencer.levels import SUPPORTED, check_level
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.replica import SnapshotBody, read_body
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.commands import (
    DeleteTopicCommand,
    Member,
    Merge,
    RecordEvent,
    decode_commands,
)
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import MemberLives, Rejection, State
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.generations import read_compacted

TERM_STEP = 1000
"""The new life's terms are so far above what this node knew that no lost node can have had them."""
VERSION_STEP = 1000
NUMBER_STEP = 4
"""Numbers that nodes may have been given that this one never heard of."""


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


@dataclass(frozen=True, slots=True)
class _Life:
    """Everything that goes on into the new life."""

    record: NodeRecord
    machine: StateMachine
    pending: list[Merge]
    finding: Finding


def look(fs: FileSystem, config: NodeConfig) -> Finding:
    """What there is; nothing is changed, but for what every start does to the log: a torn tail is
    cut, an older version's log carried over. Raises NodeDirectoryError if a node runs on the
    directory, or there are data groups; RaftStoreError if its Raft files are damaged; OtherVersion
    if this build does not know what they hold.
    """
    lock = _lock(fs, config)
    try:
        life = _read(fs, config)
        _check_is_all(life.machine.state)
        return life.finding
    finally:
        lock.close()


def begin_anew(
    fs: FileSystem, config: NodeConfig, *, kind: str, wall_ms: int
) -> tuple[Finding, str]:
    """Make the directory that of a cluster of one voter: what it held, and where the old Raft files
    are kept. Raises as `look`.
    """
    lock = _lock(fs, config)
    try:
        life = _read(fs, config)
        _check_is_all(life.machine.state)
        text = _possible_loss(life.finding)
        life.machine.apply(RecordEvent(wall_ms, kind, text))
        _stand_alone(life, config)
        _keep_own_segments(fs, life, config)
        return life.finding, _write(fs, config, life, wall_ms)
    finally:
        lock.close()


def _check_is_all(state: State) -> None:
    """Only group 0 can be recovered: it would forget the data groups, whose files are here and on
    other members. Raises NodeDirectoryError.
    """
    if state.placement.groups:
        topics = [each.name for each in state.topics.values() if each.is_placed]
        names = ", ".join(sorted(topics)[:10]) or "none of whose topics is left"
        text = f"there are {len(state.placement.groups)} data groups ({names})"
        raise NodeDirectoryError(
            f"{text}, and this recovers group 0 only: bring a majority of the members back, or "
            "restore the topics from their archive copies into a new cluster; nothing is changed"
        )


def _lock(fs: FileSystem, config: NodeConfig) -> File:
    if not fs.exists(os.path.join(config.data, "node.json")):
        raise NodeDirectoryError(f"{config.data} is no node's directory: it has no node.json")
    try:
        return fs.lock(os.path.join(config.data, "node.lock"))
    except DirectoryInUse as error:
        raise NodeDirectoryError(f"stop the node first: {error}") from error


def _read(fs: FileSystem, config: NodeConfig) -> _Life:
    record = read_record(fs, config.data)
    if not fs.exists(os.path.join(config.data, "raft")):
        raise NodeDirectoryError(
            f"{config.data} has no raft directory: an earlier recovery was interrupted, and the "
            "newest set-aside directory is it; rename that to raft, and begin again"
        )
    number = record.number
    directory = os.path.join(config.data, "raft")
    log = MemberLog.open(fs, directory, cluster=config.cluster, node=number)
    store = RaftStore.open(fs, log)
    log.close()
    machine, pending = read_body(store.snapshot.data if store.snapshot else b"")
    last_index, last_term = store.applied_index, store.snapshot.last_term if store.snapshot else 0
    for entry in store.entries:
        if entry.index <= last_index:
            continue
        last_index, last_term = entry.index, entry.term
        pending = _replay(machine, pending, entry.data)
    check_level(machine.state.level, SUPPORTED)
    finding = Finding(
        node=config.name,
        number=number,
        cluster=config.cluster,
        last_index=last_index,
        last_term=last_term,
        term=max(store.hard_state.term, last_term),
        committed=max(store.hard_state.commit, store.applied_index),
        members=tuple(member.name for member in machine.state.members.values()),
        partitions=tuple(_partitions(machine)),
        waiting=len(pending),
    )
    return _Life(record, machine, pending, finding)


def _replay(machine: StateMachine, pending: list[Merge], data: bytes) -> list[Merge]:
    """Apply one entry; the instructions that wait after it."""
    for command in decode_commands(data):
        outcome = machine.apply(command)
        if isinstance(command, Merge) and not isinstance(outcome, Rejection):
            pending.append(command)
        elif isinstance(command, DeleteTopicCommand):
            pending = [m for m in pending if m.partition in machine.state.partitions]
    return pending


def _partitions(machine: StateMachine) -> list[tuple[str, int, int]]:
    state = machine.state
    return [
        (state.topics[partition.topic_id].name, partition.index, partition.next_offset)
        for partition in state.partitions.values()
    ]


def _possible_loss(finding: Finding) -> str:
    ends = ", ".join(f"{topic}-{index} at {offset}" for topic, index, offset in finding.partitions)
    return (
        f"{finding.node} went on alone after entry {finding.last_index} of term "
        f"{finding.last_term}, of which {finding.committed} were known to be committed. What the "
        f"others acknowledged after that may be lost. Partitions: {ends or 'none'}"
    )[:1000]


def _stand_alone(life: _Life, config: NodeConfig) -> None:
    """The member list of the new life: this node."""
    state, record = life.machine.state, life.record
    known = {member.number: member for member in record.members} | state.members
    own = known.get(record.number)
    address = own.address if own is not None else str(config.advertise)
    identity = f"samelog://node/{config.name}"
    highest = max([state.next_member - 1, record.number, *known])
    state.members = {
        record.number: Member(record.number, config.name, address, identity, voter=True)
    }
    state.members_version += VERSION_STEP
    state.next_member = highest + 1 + NUMBER_STEP
    state.started = {record.number: MemberLives(record.boot, record.incarnation)}


def _keep_own_segments(fs: FileSystem, life: _Life, config: NodeConfig) -> None:
    """Nobody is left to get compacted segments from: those that are here count."""
    state = life.machine.state
    for partition in state.partitions.values():
        if partition.compacted is None:
            continue
        name = f"{state.topics[partition.topic_id].name}-{partition.index}"
        try:
            own = read_compacted(fs, os.path.join(config.data, "merged", name))
        except CorruptLog as error:
            raise NodeDirectoryError(str(error)) from error
        partition.compacted.keep(
            own.segments if own.copied is None else [*own.segments, own.copied]
        )


def _write(fs: FileSystem, config: NodeConfig, life: _Life, wall_ms: int) -> str:
    data, record, finding = config.data, life.record, life.finding
    new = os.path.join(data, "raft.new")
    if fs.exists(new):
        fs.remove_tree(new)
    _write_raft(fs, new, life)
    aside = os.path.join(data, f"set-aside.raft.{wall_ms}")
    fenced = msgspec.structs.replace(record, suspicion="its recovery was interrupted", voters=[])
    write_record(fs, data, fenced)
    fs.rename(os.path.join(data, "raft"), aside)
    fs.rename(new, os.path.join(data, "raft"))
    fs.sync_directory(data)
    alone = msgspec.structs.replace(
        record,
        suspicion="",
        members=list(life.machine.state.members.values()),
        members_version=life.machine.state.members_version,
        voters=[finding.number],
    )
    write_record(fs, data, known_by_birth(fs, data, alone))
    return aside


def _write_raft(fs: FileSystem, directory: str, life: _Life) -> None:
    """Raft files that begin with a snapshot of everything."""
    finding = life.finding
    body = msgspec.msgpack.encode(SnapshotBody(life.machine.encode(), life.pending))
    snapshot = Snapshot(finding.last_index, finding.last_term, (finding.number,), (), body)
    state = HardState(finding.term + TERM_STEP, None, finding.last_index)
    log = MemberLog.open(fs, directory, cluster=finding.cluster, node=finding.number)
    RaftStore.open(fs, log).write(
        Effects(
            send=[],
            snapshot=snapshot,
            entries=[],
            hard_state=state,
            must_sync=True,
            token=0,
            send_after_save=[],
            apply=[],
            reads=[],
            role_changed=False,
        )
    )
    log.sync()
    log.close()
