"""Keeps topics from being deleted while they are in use.

In use is what has a connected subscriber (at any node), a group with a member that subscribes to
it or has it, committed or not, a publisher with an open run in it, or what is a mirror.

Invariant: this module changes nothing; a member that is connected and does not answer counts as one
that serves readers (rule readers.23).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress

from samelog.config.authorisation import NODE_PREFIX
from samelog.format.consumer_protocol import assigned_partitions, subscribed_topics
from samelog.replicator.pull.streams import ServedMerged
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.tables.groups import ConsumerGroupRecord
from samelog.sequencer.state.tables.session_index import node_of
from samelog.sequencer.state.tables.sessions import (
    Input,
)
from samelog.sequencer.state.types import State
from samelog.wire.errors import FaultCode
from samelog.wire.peer_messages import ReadersAsked

ANSWERED_S = 3.0
SHOWN = 5
"""How many users an error names."""


async def check_unused(node: ServedNode, topic: str) -> None:
    """Raises ChangeRefused if a topic or view is in use; TimeoutError without a leader."""
    await node.raft.proposer.catch_up()
    users = list(users_in_state(node.logs.machine.state, topic))
    users += map(_subscriber, readers_here(node, topic))
    users += () if users else await _readers_elsewhere(node, topic)
    if not users:
        return
    more = f" and {len(users) - SHOWN} more" if len(users) > SHOWN else ""
    text = f"topic {topic!r} is in use by {', '.join(users[:SHOWN])}{more}; nothing was changed"
    raise ChangeRefused(FaultCode.TOPIC_IN_USE, text, "stop them, or set in_use (--in-use)")


def users_in_state(state: State, topic: str) -> Iterator[str]:
    """Yield the groups, publishers and the mirror that use a topic, by the replicated state."""
    for name, group in state.groups.by_id.items():
        if _uses(group, topic):
            yield f"group {name}"
    topic_id = state.topics.by_name.get(topic)
    if topic_id is None:
        return
    numbers = frozenset(state.topics.by_id[topic_id].partition_numbers)
    if state.mirrors.of_topic(topic_id) is not None:
        yield "its mirror"
    inputs = [each for each in state.sessions.inputs.values() if each.partition in numbers]
    for name in sorted({each.session for each in inputs if _is_open(state, each)}):
        yield f"publisher {name}"


def _is_open(state: State, entry: Input) -> bool:
    """Whether a publisher still writes the run of an input, or has a part of an ended run that is
    yet to come. Nodes write for Kafka clients.
    """
    session = state.sessions.by_name.get(entry.session)
    runs = [] if session is None or node_of(session.name) is not None else session.runs
    is_newest = bool(runs) and not runs[-1].closed and runs[-1].number == entry.run
    return is_newest or any(entry.number in run.to_come for run in runs)


def _uses(group: ConsumerGroupRecord, topic: str) -> bool:
    """Whether a member of a group subscribes to a topic, or has a partition of it."""
    if any(topic in member.subscribed for member in group.consumers.values()):
        return True
    return any(
        any(topic in (subscribed_topics(metadata) or ()) for _, metadata in member.protocols)
        or any(name == topic for name, each in assigned_partitions(member.assignment) if each)
        for member in group.members.values()
    )


def _subscriber(identity: str) -> str:
    return f"subscriber {identity}"


def readers_here(node: ServedNode, topic: str) -> tuple[str, ...]:
    """Return the identities of the subscribers that read a topic or view at this node."""
    found = set()
    for server in node.member.connections.pulls:
        identity = str(server.link.identity)
        reads = any(
            isinstance(served, ServedMerged) and served.stream.topic == topic
            for served, _ in server.places
        )
        if reads and not identity.startswith(NODE_PREFIX):
            found.add(identity)
    return tuple(sorted(found))


async def _readers_elsewhere(node: ServedNode, topic: str) -> list[str]:
    """Return the readers of a topic at the other members, and the members that did not answer."""
    peers, done, question = node.peers, asyncio.Event(), uuid.uuid4().hex
    survey = peers.surveys.begin(question, peers.links.open, done.set)
    try:
        for member in tuple(survey.silent):
            if not peers.links.send(member, ReadersAsked(question, topic)):
                survey.told(member, ())  # it is not connected: it serves no reader
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_S):
                if survey.silent:
                    await done.wait()
    finally:
        peers.surveys.close(question)
    silent = sorted(map(peers.members.name, survey.silent))
    readers = map(_subscriber, sorted(survey.readers))
    return [*readers, *(f"readers of {each}, which did not say" for each in silent)]
