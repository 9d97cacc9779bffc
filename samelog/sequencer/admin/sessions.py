"""Answers administrators about publishers: their sessions, and the dedup ids they use.

Invariant: looking changes nothing, and reads no file.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from samelog.admin import requests
from samelog.admin.answers import (
    HeldRecords,
    LostToDamage,
    SessionDecided,
    SessionInfo,
    SessionRetired,
)
from samelog.admin.views import (
    DedupPublisher,
    DedupRow,
    DedupUsers,
    PublisherSessions,
    SessionPartition,
    SessionPlace,
    SessionRow,
    Watermark,
)
from samelog.format.positions import SessionPosition
from samelog.format.steps import StepWork
from samelog.runtime.clock import Clock
from samelog.sequencer.admin.parts import ServedNode, groups_here, parts_of
from samelog.sequencer.admin.topics import partition_name
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.parts import LogParts, RaftParts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import node_of
from samelog.sequencer.state.tables.sessions import (
    Input,
    RetireSessionCommand,
    Session,
)
from samelog.sequencer.state.tables.topics import Topic
from samelog.wire.errors import FaultCode
from samelog.wire.holds import HeldPart
from samelog.wire.peer_messages import HoldsDecision

DECIDED_S, LOOK_S = 8.0, 0.02
"""How long, and how often, an answer waits for a publisher to carry out a decision."""
NEVER_MS = -1
NOWHERE = SessionPosition(-1, 0, 0)


class GroupInput(NamedTuple):
    """An input, with the logs and the Raft group that have it."""

    entry: Input
    logs: LogParts
    raft: RaftParts

    @property
    def is_there(self) -> bool:
        """Whether it is not gone meanwhile."""
        return self.entry.number in self.logs.machine.state.sessions.inputs

    @property
    def unmerged_bytes(self) -> int:
        """What this node holds of it, and has not merged."""
        return self.logs.sessions.unmerged_bytes(self.entry)

    @property
    def received_at(self) -> float | None:
        """When something of it came last, by the event loop's clock; None: not in this life."""
        return self.logs.intake.received_at.get(self.entry.number)


async def retire_session(node: ServedNode, request: requests.RetireSession) -> SessionRetired:
    """Have a session fenced. Raises ChangeRefused, TimeoutError."""
    writer = node_of(request.session)
    if writer is not None:
        text = f"node {node.peers.members.name(writer)} writes session {request.session!r}"
        raise ChangeRefused(
            FaultCode.SESSION_CONFLICT, text, "remove the node if it is lost for good"
        )
    known = node.logs.machine.state.sessions.by_name.get(request.session)
    session_id = "" if known is None else known.session_id
    command = RetireSessionCommand(request.session, session_id, node.member.clock.wall_ms())
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.UNKNOWN_SESSION, outcome.message, "samelog session list")
    return SessionRetired(request.session)


async def settle_holds(
    node: ServedNode, request: requests.ContinueSession | requests.DiscardSession
) -> SessionDecided:
    """Have the publisher of a session continue or discard its held records, and wait until it has.
    Raises ChangeRefused.
    """
    name = request.session
    if isinstance(request, requests.ContinueSession):
        await _check_partitions(node, name)
    topic_ids = {part.topic_id for part in _held_parts(node, name)}
    decided = decide_holds(node, request)
    try:
        async with asyncio.timeout(DECIDED_S):
            while any(part.topic_id in topic_ids for part in _held_parts(node, name)):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        text = f"the publisher of session {name!r} has not reported that it has done so"
        remedy = f"it will when it can: samelog session list shows what {name} still holds"
        raise ChangeRefused(FaultCode.TIMEOUT, text, remedy) from error
    return decided


async def _check_partitions(node: ServedNode, session: str) -> None:
    """Refuse to continue records of partitions that the topic of that name lacks: no node would
    take them, and they would not be held any more. Raises ChangeRefused.
    """
    if not _lacking(node, session):
        return
    await node.raft.proposer.catch_up()  # they may have been added just now, at another node
    lacking = _lacking(node, session)
    if not lacking:
        return
    topic = lacking[0][0]
    numbers = [number for each, number in lacking if each is topic]
    text = (
        f"session {session!r} holds records for partition{'s' * (len(numbers) > 1)} "
        f"{', '.join(map(str, numbers))} of topic {topic.name!r}, which has only "
        f"{topic.partitions} partition{'s' * (topic.partitions > 1)}"
    )
    remedy = (
        f"samelog topic add-partitions {topic.name} {numbers[-1] + 1}; or drop all that is held "
        f"with: samelog session discard {session} --confirm {session}"
    )
    raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, remedy)


def _lacking(node: ServedNode, session: str) -> list[tuple[Topic, int]]:
    """The partitions of a session's held records that the present topics do not have."""
    found = []
    for part in sorted(_held_parts(node, session)):
        topic = node.logs.machine.state.topics.named(part.topic)
        if topic is not None and part.partition >= topic.partitions:
            found.append((topic, part.partition))
    return found


def _held_parts(node: ServedNode, session: str) -> set[HeldPart]:
    """What publishers of a session hold that are connected to any member."""
    told = [sessions.get(session, ()) for sessions in node.peers.presence.holds.values()]
    told.append(node.member.connections.holds(session))
    return {part for parts in told for part in parts if part.size_bytes}


def decide_holds(
    node: ServedNode, request: requests.ContinueSession | requests.DiscardSession
) -> SessionDecided:
    """Tell the publisher of a session what becomes of its held records, at whichever members it is
    connected. Raises ChangeRefused.
    """
    name = request.session
    parts = held_records(node).get(name, ())
    if not parts:
        raise _nothing_held(node, name)
    continues = isinstance(request, requests.ContinueSession)
    decided = HoldsDecision(name, continues, tuple(sorted({part.topic_id for part in parts})))
    peers = node.peers
    told = [number for number, sessions in peers.presence.holds.items() if name in sessions]
    reached = [peers.links.send(number, decided) for number in told]
    if not (pass_decision(node, decided) or any(reached)):
        names = ", ".join(map(peers.members.name, sorted(told)))
        text = f"the publisher of session {name!r} is connected to {names} only"
        raise ChangeRefused(FaultCode.NOT_READY, text, "try again once this node reaches it")
    return SessionDecided(name, sum(part.size_bytes for part in parts))


def _nothing_held(node: ServedNode, session: str) -> ChangeRefused:
    """Return why nothing can be decided about a session."""
    if session not in node.logs.machine.state.sessions.by_name:
        text = f"there is no session {session!r}"
        return ChangeRefused(FaultCode.UNKNOWN_SESSION, text, "samelog session list")
    if any(each.session == session for each in node.member.connections.pushes):
        text = f"session {session!r} holds no records: its publisher is connected"
        return ChangeRefused(FaultCode.OUT_OF_RANGE, text, "there is nothing to decide")
    text = (
        f"no publisher of session {session!r} is connected to node {node.member.config.name}, and "
        "none reports held records"
    )
    remedy = "start the publisher, or samelog sidecar publisher for its directory"
    return ChangeRefused(FaultCode.OUT_OF_RANGE, text, remedy)  # NOT_READY: clients ask all nodes


def pass_decision(node: ServedNode, decided: HoldsDecision) -> bool:
    """Tell a publisher that is connected to this node; whether there is one that holds anything."""
    found = node.member.connections.holding.get(decided.session, {})
    for each in found:
        each.decide_holds(decided.topic_ids, continues=decided.continues)
    return bool(found)


def _all_holds(node: ServedNode) -> dict[str, tuple[HeldPart, ...]]:
    """By session, what publishers hold that are connected to any member."""
    found: dict[str, tuple[HeldPart, ...]] = {}
    for sessions in node.peers.presence.holds.values():
        found |= sessions
    connections = node.member.connections
    return found | {name: connections.holds(name) for name in connections.holding}


def held_records(node: ServedNode) -> dict[str, tuple[HeldRecords, ...]]:
    """What publishers hold that are connected to any member, by their sessions."""
    return {
        session: tuple(HeldRecords(*part[:4]) for part in parts if part.size_bytes)
        for session, parts in _all_holds(node).items()
        if any(part.size_bytes for part in parts)
    }


def damaged_records(node: ServedNode) -> dict[str, tuple[LostToDamage, ...]]:
    """What publishers lost to damage that are connected to any member, by their sessions."""
    return {
        session: tuple(
            LostToDamage(part.topic, part.partition, part.damaged_ranges)
            for part in parts
            if part.damaged_ranges
        )
        for session, parts in _all_holds(node).items()
        if any(part.damaged_ranges for part in parts)
    }


def list_sessions(node: ServedNode, request: requests.ListSessions) -> StepWork[PublisherSessions]:
    """Every session that the cluster remembers."""
    rows = []
    for row in session_rows(node):
        if row is not None:
            rows.append(row)
        yield
    return PublisherSessions(tuple(rows))


def session_rows(node: ServedNode) -> Iterator[SessionRow | None]:
    """Every session, and None for a step that makes no row; the cluster may change in between."""
    state = node.logs.machine.state
    node.logs.intake.traffic.keep(state.sessions.by_name)
    since = {server.session: server.since for server in reversed(node.member.connections.pushes)}
    inputs = yield from inputs_by_session(node)
    held, damaged = held_records(node), damaged_records(node)
    for name, session in tuple(state.sessions.by_name.items()):
        entries = [each for each in inputs[name] if each.is_there]
        info = session_info(session, entries, held.get(name, ()), damaged.get(name, ()))
        yield _session(node, info, entries, since.get(name))


def inputs_by_session(node: ServedNode) -> StepWork[defaultdict[str, list[GroupInput]]]:
    """Return the inputs of each session in all groups that are here. Group 0 knows the inputs of
    all partitions; where a partition is, its own group tells.
    """
    found: defaultdict[str, list[GroupInput]] = defaultdict(list)
    for logs, raft in tuple(groups_here(node)):
        for entry in tuple(logs.machine.state.sessions.inputs.values()):
            known = parts_of(node, entry.partition)
            if known is not None and known[0] is logs:
                found[entry.session].append(GroupInput(entry, logs, raft))
            yield
    return found


def wall_ms(clock: Clock, at: float | None) -> int:
    """A moment of the event loop's clock as the time of day; NEVER_MS for None."""
    return NEVER_MS if at is None else clock.wall_ms() - round(1000 * (clock.now() - at))


def session_info(
    session: Session,
    entries: Sequence[GroupInput],
    held: tuple[HeldRecords, ...] = (),
    damaged: tuple[LostToDamage, ...] = (),
) -> SessionInfo:
    """A session with its inputs, and what this node holds of it but has not merged."""
    run = session.runs[-1] if session.runs else None
    return SessionInfo(
        session=session.name,
        identity=session.identity,
        run=0 if run is None else run.number,
        is_open=run is not None and not run.closed,
        unmerged_bytes=sum(each.unmerged_bytes for each in entries),
        dedup_id="" if run is None or run.dedup_id is None else run.dedup_id,
        held=held,
        damaged=damaged,
    )


def _session(
    node: ServedNode, info: SessionInfo, entries: Sequence[GroupInput], since: float | None
) -> SessionRow:
    clock, meter = node.member.clock, node.logs.intake.traffic.sessions.get(info.session)
    last = max((at for each in entries if (at := each.received_at) is not None), default=None)
    return SessionRow(
        session=info.session,
        identity=info.identity,
        run=info.run,
        is_open=info.is_open,
        connected=since is not None,
        connected_ms=wall_ms(clock, since),
        last_record_ms=wall_ms(clock, last),
        received_bytes=0 if meter is None else meter.total,
        bytes_per_s=0.0 if meter is None else round(meter.rate(clock.now()), 1),
        unmerged_bytes=info.unmerged_bytes,
        dedup_id=info.dedup_id,
        partitions=tuple(_part(node, entry) for entry in entries),
        held=info.held,
        damaged=info.damaged,
    )


def _part(node: ServedNode, each: GroupInput) -> SessionPartition:
    entry = each.entry
    return SessionPartition(
        *partition_name(node.logs.machine, entry.partition),
        SessionPlace(*each.logs.sessions.held(entry)),
        SessionPlace(*entry.place),
        SessionPlace(*each.raft.replica.released.get(entry.number, NOWHERE)),
    )


def list_dedup_ids(node: ServedNode, request: requests.ListDedupIds) -> StepWork[DedupUsers]:
    """Every dedup id that something was merged under in a group that is here, or that an open run
    names.
    """
    held = [logs.machine for logs, _ in groups_here(node)]
    names = {name for each in held for name in each.state.watermarks.by_dedup_id}
    publishers: dict[str, list[DedupPublisher]] = {name: [] for name in names}
    for found in _dedup_publishers(node, held):
        if found is not None:
            publishers.setdefault(found[0], []).append(found[1])
        yield
    rows = []
    for name in sorted(publishers):
        watermarks = yield from _watermarks(held, name)
        rows.append(DedupRow(name, watermarks, tuple(publishers[name])))
    return DedupUsers(tuple(rows))


def _dedup_publishers(
    node: ServedNode, held: Sequence[StateMachine]
) -> Iterator[tuple[str, DedupPublisher] | None]:
    """Yield publishers by the ids that their open runs name, and None for other sessions."""
    there = {server.session for server in node.member.connections.pushes}
    for session in tuple(node.logs.machine.state.sessions.by_name.values()):
        run = session.runs[-1] if session.runs else None
        if run is None or run.dedup_id is None:
            yield None
            continue
        ids = tuple(last for each in held for last in _last_ids(each, session))
        is_there = session.name in there
        yield run.dedup_id, DedupPublisher(session.name, session.identity, is_there, ids)


def _watermarks(held: Iterable[StateMachine], name: str) -> StepWork[tuple[Watermark, ...]]:
    found = []
    for machine in held:
        for number, value in tuple(machine.state.watermarks.by_dedup_id.get(name, {}).items()):
            if number in machine.state.partitions.by_number:
                found.append(Watermark(*partition_name(machine, number), value))
            yield
    return tuple(found)


def _last_ids(machine: StateMachine, session: Session) -> Iterator[Watermark]:
    for entry in machine.state.sessions.inputs_of(session.name):
        if entry.last_id is not None:
            yield Watermark(*partition_name(machine, entry.partition), entry.last_id)
