"""What of a node's state the command line does not show: who is connected, how far each has come.

Invariant: looking changes nothing, and reads no file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from samelog.format.positions import SessionPosition
from samelog.replicator.pull.streams import ServedMerged
from samelog.sequencer.merge.merging import MergedPartition

if TYPE_CHECKING:
    from samelog.replicator.pull.server import PullServer
    from samelog.sequencer.node import Node
    from samelog.sequencer.state.group_state import Group
    from samelog.sequencer.state.types import Input, Session
    from samelog.store.merged.log import MergedLog

NONE = -1


class SessionPartition(NamedTuple):
    """A session's part of one partition: up to where this node has its bytes, up to where they are
    merged, and up to where a majority has them merged durably (none yet: run -1).
    """

    topic: str
    partition: int
    replicated: SessionPosition
    merged: SessionPosition
    released: SessionPosition


class SessionRow(NamedTuple):
    """A session as this node sees it. `connected`: a publisher ships it to this node now, since
    `connected_ms` (-1: none does); `last_record_ms`: when bytes of it came last; bytes and the rate
    (per second, lately) are of what this node took in since it was started.
    """

    session: str
    identity: str
    run: int
    is_open: bool
    connected: bool
    connected_ms: int
    last_record_ms: int
    received_bytes: int
    bytes_per_s: float
    unmerged_bytes: int
    dedup_id: str
    partitions: tuple[SessionPartition, ...]


class Sessions(NamedTuple):
    """All sessions."""

    sessions: tuple[SessionRow, ...]


def sessions(node: Node) -> Sessions:
    """Every session that the cluster remembers."""
    known = node.replica.machine.state.sessions
    node.intake.traffic.keep(known)
    since = {server.session: server.since for server in reversed(node.connections.pushes)}
    entries = inputs_by_session(node)
    rows = (_session(node, each, entries[name], since.get(name)) for name, each in known.items())
    return Sessions(tuple(rows))


def inputs_by_session(node: Node) -> defaultdict[str, list[Input]]:
    """The inputs of each session, in one go."""
    found: defaultdict[str, list[Input]] = defaultdict(list)
    for entry in node.replica.machine.state.inputs.values():
        found[entry.session].append(entry)
    return found


def _session(
    node: Node, session: Session, entries: Sequence[Input], since: float | None
) -> SessionRow:
    run = session.runs[-1] if session.runs else None
    meter = node.intake.traffic.sessions.get(session.name)
    came = [node.intake.received_at.get(entry.number) for entry in entries]
    last = max((at for at in came if at is not None), default=None)
    return SessionRow(
        session=session.name,
        identity=session.identity,
        run=0 if run is None else run.number,
        is_open=run is not None and not run.closed,
        connected=since is not None,
        connected_ms=_wall_ms(node, since),
        last_record_ms=_wall_ms(node, last),
        received_bytes=0 if meter is None else meter.total,
        bytes_per_s=0.0 if meter is None else round(meter.rate(node.clock.now()), 1),
        unmerged_bytes=sum(map(node.sessions.unmerged_bytes, entries)),
        dedup_id="" if run is None or run.dedup_id is None else run.dedup_id,
        partitions=tuple(_part(node, entry) for entry in entries),
    )


def _wall_ms(node: Node, at: float | None) -> int:
    """A moment of the event loop's clock as the time of day; -1: never."""
    if at is None:
        return NONE
    return node.clock.wall_ms() - round(1000 * (node.clock.now() - at))


def _part(node: Node, entry: Input) -> SessionPartition:
    topic, index = name_of(node, entry.partition)
    released = node.replica.released.get(entry.number, SessionPosition(-1, 0, 0))
    here = node.sessions.held(entry)
    places = (SessionPosition(*here), SessionPosition(*entry.place), SessionPosition(*released))
    return SessionPartition(topic, index, *places)


def name_of(node: Node, number: int) -> tuple[str, int]:
    """(topic, partition) of a partition's number."""
    state = node.replica.machine.state
    partition = state.partitions[number]
    return state.topics[partition.topic_id].name, partition.index


class Watermark(NamedTuple):
    """The highest id merged in a partition."""

    topic: str
    partition: int
    watermark: int


class Twin(NamedTuple):
    """A publisher that uses a dedup id, and the highest of its ids that this node has looked at, in
    each partition; connected: to this node.
    """

    session: str
    identity: str
    connected: bool
    partitions: tuple[Watermark, ...]


class DedupRow(NamedTuple):
    """A dedup id, and who uses it."""

    dedup_id: str
    partitions: tuple[Watermark, ...]
    publishers: tuple[Twin, ...]


class Dedup(NamedTuple):
    """All dedup ids."""

    dedup_ids: tuple[DedupRow, ...]


def dedup(node: Node) -> Dedup:
    """Every dedup id that something was merged under, or that an open run names."""
    state = node.replica.machine.state
    twins: dict[str, list[Twin]] = {name: [] for name in state.watermarks}
    there = {server.session for server in node.connections.pushes}
    for session in state.sessions.values():
        run = session.runs[-1] if session.runs else None
        if run is not None and run.dedup_id is not None:
            ids = tuple(_last_ids(node, session))
            twin = Twin(session.name, session.identity, session.name in there, ids)
            twins.setdefault(run.dedup_id, []).append(twin)
    return Dedup(
        tuple(DedupRow(name, _watermarks(node, name), tuple(twins[name])) for name in sorted(twins))
    )


def _watermarks(node: Node, name: str) -> tuple[Watermark, ...]:
    state = node.replica.machine.state
    known = state.watermarks.get(name, {})
    return tuple(
        Watermark(*name_of(node, number), value)
        for number, value in known.items()
        if number in state.partitions
    )


def _last_ids(node: Node, session: Session) -> Iterator[Watermark]:
    for entry in node.replica.machine.inputs_of(session.name):
        if entry.last_id is not None:
            yield Watermark(*name_of(node, entry.partition), entry.last_id)


class ReadPartition(NamedTuple):
    """One log that is read: sent up to byte `byte` of the segment `segment`; so much is left."""

    topic: str
    partition: int
    segment: int
    byte: int
    lag_bytes: int


class SubscriberRow(NamedTuple):
    """One connection that reads merged logs from this node: a subscriber's, or a peer's that mends
    its own. The rate is of lately.
    """

    identity: str
    peer: str
    connected_ms: int
    sent_bytes: int
    bytes_per_s: float
    partitions: tuple[ReadPartition, ...]


class Subscribers(NamedTuple):
    """All of them, the oldest first."""

    subscribers: tuple[SubscriberRow, ...]


def subscribers(node: Node) -> Subscribers:
    """Who reads merged logs now."""
    rows = (_subscriber(node, server) for server in node.connections.pulls)
    return Subscribers(tuple(row for row in rows if row.partitions))


def _subscriber(node: Node, server: PullServer) -> SubscriberRow:
    return SubscriberRow(
        str(server.link.identity),
        server.link.peername,
        _wall_ms(node, server.since),
        server.sent.total,
        round(server.sent.rate(node.clock.now()), 1),
        tuple(reading(server)),
    )


def reading(server: PullServer) -> Iterator[ReadPartition]:
    """The merged logs that one connection reads."""
    for served, place in server.places:
        if isinstance(served, ServedMerged) and isinstance(served.stream, MergedPartition):
            stream = served.stream
            behind = _bytes_behind(stream.log, place)
            yield ReadPartition(stream.topic, stream.index, *place, behind)


def _bytes_behind(log: MergedLog, place: tuple[int, int]) -> int:
    segment, byte = place
    sizes = (each.size for each in log.segments() if each.base_offset >= segment)
    return max(0, sum(sizes) - byte)


class LatestPosition(NamedTuple):
    """Where a partition ends: `offset` is what the next record here will have, `durable` what this
    node has synced up to, `merged` what a majority has, `committed` what Raft has promised; and the
    place of `offset` in this node's files.
    """

    topic: str
    partition: int
    offset: int
    durable_offset: int
    merged_offset: int
    committed_offset: int
    segment: int
    byte: int


class LatestPositions(NamedTuple):
    """Of all partitions, or of one topic's."""

    positions: tuple[LatestPosition, ...]


def latest_positions(node: Node, topic: str | None) -> LatestPositions:
    """The ends of merged logs."""
    state = node.replica.machine.state
    names = {number: name_of(node, number) for number in state.partitions}
    wanted = {number: name for number, name in names.items() if topic in (None, name[0])}
    return LatestPositions(tuple(_latest(node, *each) for each in wanted.items()))


def _latest(node: Node, number: int, name: tuple[str, int]) -> LatestPosition:
    log = node.merging.partitions[number].log
    return LatestPosition(
        *name,
        log.next_offset,
        log.durable_offset,
        node.coordinator.cursors.get(number, 0),
        node.replica.machine.state.partitions[number].next_offset,
        *log.end(),
    )


class GroupRow(NamedTuple):
    """A consumer group, and how many records it has not committed in all its partitions."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: int
    generation: int
    lag: int


class GroupRows(NamedTuple):
    """All groups."""

    groups: tuple[GroupRow, ...]


def groups(node: Node) -> GroupRows:
    """Consumer groups, and how far they are behind."""
    known = node.replica.machine.state.groups.by_id
    return GroupRows(tuple(_group(node, name, group) for name, group in known.items()))


def _group(node: Node, name: str, group: Group) -> GroupRow:
    return GroupRow(
        name,
        group.state_name,
        group.protocol_type,
        group.protocol or "",
        len(group.members) + len(group.consumers),
        group.generation,
        sum(lag for _, lag in group_lags(node, group)),
    )


def group_lags(node: Node, group: Group) -> Iterator[tuple[int, int]]:
    """(partition's number, records that are there and not committed)."""
    for number, known in group.offsets.items():
        partition = node.replica.machine.state.partitions.get(number)
        merged = node.merging.partitions.get(number)
        if partition is not None and merged is not None:
            begin = max(known.offset, merged.log.start_offset)
            yield number, max(0, partition.next_offset - begin)


class RaftMember(NamedTuple):
    """A member of the group. What the leader knows of its log: the highest entry that it has, and
    the state of feeding it (elsewhere -1 and empty).
    """

    name: str
    number: int
    address: str
    voter: bool
    connected: bool
    match_index: int
    progress: str


class RaftStatus(NamedTuple):
    """This node's part of the Raft group."""

    role: str
    term: int
    leader: str | None
    may_vote: bool
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    applied_index: int
    members: tuple[RaftMember, ...]


def raft(node: Node) -> RaftStatus:
    """How the group is, as this node sees it."""
    core = node.group.raft
    return RaftStatus(
        core.role.value,
        core.term,
        None if core.leader is None else node.members.name(core.leader),
        core.may_vote,
        core.first_index,
        core.last_index,
        core.durable_index,
        core.commit_index,
        node.replica.applied_index,
        tuple(_member(node, number) for number in node.members.all),
    )


def _member(node: Node, number: int) -> RaftMember:
    member, known = node.members.all[number], node.group.raft.progress(number)
    own = number == node.number and node.group.is_leader
    match = node.group.raft.durable_index if own else NONE if known is None else known.match
    return RaftMember(
        member.name,
        number,
        member.address,
        member.voter,
        node.is_there(number),
        match,
        "" if known is None else known.state.name.lower(),
    )
