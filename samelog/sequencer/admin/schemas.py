"""Answers administrators about schemas of topics: their versions, one more version.

Invariant: what is answered with success is committed.
"""

from __future__ import annotations

from msgspec import UNSET, structs

from samelog.admin.answers import SchemaInfo, SchemaPage, SchemaSet
from samelog.admin.requests import ListSchemas, SetSchema
from samelog.config.authorisation import ANONYMOUS
from samelog.sequencer.admin.parts import ServedNode, parts_here
from samelog.sequencer.admin.topics import check_no_mirror, find_topic
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.schema_commands import SetSchemaCommand
from samelog.sequencer.state.schema_state import mode_of
from samelog.sequencer.state.types import Partition, Rejection, Topic
from samelog.typed.schema import BadSchema, Schema, parse_schema
from samelog.wire.errors import FaultCode

PAGE_BYTES = 1 << 20
"""Of texts in one answer, or one text."""
_CODES = {
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
    "SCHEMA_MOVED": FaultCode.ALREADY_EXISTS,
}


def list_schemas(node: ServedNode, request: ListSchemas, identity: str) -> SchemaPage:
    """The versions of a topic's schema, a page at a time. Raises ChangeRefused."""
    is_local = identity == ANONYMOUS  # over HTTP nobody else has no certificate
    if not is_local and not node.member.rights.may_see(identity, request.topic):
        text = f"{identity} may neither read nor write topic {request.topic!r}"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text)
    topic = find_topic(node, request.topic)
    found: list[SchemaInfo] = []
    size = 0
    for version in range(request.from_version, len(topic.schemas) + 1):
        each = _version(node, topic, version)
        size += len(each.schema.encode())
        if found and size > PAGE_BYTES:
            break
        found.append(each)
    newest = len(topic.schemas)
    has_more = bool(found) and found[-1].version < newest
    page = SchemaPage(
        topic.name,
        mode_of(topic.settings).value,
        newest,
        tuple(found),
        has_more,
        topic_id=topic.log_id,
    )
    if request.partition is UNSET:
        return page
    partition = _partition(node, topic, request.partition)
    return structs.replace(
        page, since=tuple(partition.schema_since), next_offset=partition.next_offset
    )


def _partition(node: ServedNode, topic: Topic, index: int) -> Partition:
    if not 0 <= index < topic.partitions:
        text = f"topic {topic.name!r} has {topic.partitions} partitions, no partition {index}"
        raise ChangeRefused(FaultCode.UNKNOWN_TOPIC, text)
    number = topic.partition_numbers[index]
    return parts_here(node, number)[0].machine.state.partitions[number]


def _version(node: ServedNode, topic: Topic, version: int) -> SchemaInfo:
    known = topic.schemas[version - 1]
    text = node.logs.machine.state.schemas.texts[known.fingerprint].text
    return SchemaInfo(version, known.set_ms, known.fingerprint, text)


async def set_schema(node: ServedNode, request: SetSchema) -> SchemaSet:
    """Have a topic get another version. Raises ChangeRefused, TimeoutError."""
    check_no_mirror(node, find_topic(node, request.topic))
    return await set_version(node, request.topic, request.follows, request.schema)


async def set_version(node: ServedNode, name: str, follows: int, text: str) -> SchemaSet:
    """The same, of a mirror too. Raises ChangeRefused, TimeoutError."""
    schema = _parsed(text)
    topic_id, now_ms = find_topic(node, name).topic_id, node.member.clock.wall_ms()
    command = SetSchemaCommand(topic_id, follows, schema.text, now_ms)
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(_CODES.get(outcome.code, FaultCode.OUT_OF_RANGE), outcome.message)
    topic = find_topic(node, name)
    is_new = [each.fingerprint for each in topic.schemas[follows:][:1]] == [schema.fingerprint]
    return SchemaSet(topic.name, follows + is_new, schema.fingerprint)


def _parsed(text: str) -> Schema:
    try:
        return parse_schema(text)
    except BadSchema as error:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, str(error)) from error
