"""Answers administrators about schemas of topics (their versions, one more version), and about
views: create, drop, describe.

Invariant: what is answered with success is committed; who creates a view may read its base.
"""

from __future__ import annotations

import uuid

from msgspec import UNSET, structs

from samelog.admin.answers import (
    PartitionInfo,
    SchemaInfo,
    SchemaPage,
    SchemaSet,
    TopicDescription,
    TopicInfo,
)
from samelog.admin.requests import (
    CreateView,
    DeleteTopic,
    DescribeTopic,
    ListSchemas,
    SetSchema,
)
from samelog.config.authorisation import ANONYMOUS
from samelog.format.arrow import ArrowMissing
from samelog.format.nouns import counted
from samelog.format.steps import StepWork
from samelog.sequencer.admin.parts import ServedNode, parts_here
from samelog.sequencer.admin.topic_users import check_unused
from samelog.sequencer.admin.topics import (
    check_no_mirror,
    delete_topic,
    describe_topic,
    find_readable,
    find_topic,
    partition_info,
    view_info,
)
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.filtering.view_stream import rows_of_view
from samelog.sequencer.judging import libraries
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.places import base_topic
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.tables.views import CreateViewCommand, DropViewCommand, View
from samelog.sequencer.state.units.schemas import mode_of
from samelog.typed.enforcing import ENFORCE, Enforce
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.passing import NO_SCHEMA, Passing, projected
from samelog.typed.filters.selection import RowsWanted
from samelog.typed.filters.view_text import ViewText, names_in, parse_view
from samelog.typed.schema import BadSchema, Schema, parse_schema
from samelog.wire.errors import FaultCode

PAGE_BYTES = 1 << 20
"""Of texts in one answer, or one text."""
_CODES = {
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
    "SCHEMA_MOVED": FaultCode.ALREADY_EXISTS,
    "TOPIC_EXISTS": FaultCode.ALREADY_EXISTS,
}
_OWN = "__"
"""What the cluster's own topics begin with."""


async def list_schemas(node: ServedNode, request: ListSchemas, identity: str) -> SchemaPage:
    """The versions of a topic's schema, a page at a time. Raises ChangeRefused, TimeoutError."""
    await _learn_of(node, request.topic)
    is_local = identity == ANONYMOUS  # over HTTP nobody else has no certificate
    if not is_local and not node.member.rights.may_see(identity, request.topic):
        text = f"{identity} may neither read nor write topic {request.topic!r}"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text)
    topic = find_readable(node, request.topic)
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
        enforce=topic.settings.get(ENFORCE, Enforce.OFF.value),
    )
    if request.partition is UNSET:
        return page
    base = base_topic(node.logs.machine.state, topic)
    partition = _partition(node, base, request.partition)
    if base is not topic:  # a view has one version, for all that it shows
        return structs.replace(page, next_offset=partition.next_offset)
    return structs.replace(
        page, since=tuple(partition.schema_since), next_offset=partition.next_offset
    )


async def _learn_of(node: ServedNode, topic: str) -> None:
    """A topic that another node has just made may not be known here. Raises TimeoutError."""
    if node.logs.machine.state.topics.named(topic) is None:
        await node.raft.proposer.catch_up()


def _partition(node: ServedNode, topic: Topic, index: int) -> Partition:
    if not 0 <= index < topic.partitions:
        count = counted(topic.partitions, "partition")
        text = f"topic {topic.name!r} has {count}, no partition {index}"
        raise ChangeRefused(FaultCode.UNKNOWN_TOPIC, text)
    number = topic.partition_numbers[index]
    return parts_here(node, number)[0].machine.state.partitions.by_number[number]


def _version(node: ServedNode, topic: Topic, version: int) -> SchemaInfo:
    known = topic.schemas[version - 1]
    text = node.logs.machine.state.schemas.texts[known.fingerprint].text
    return SchemaInfo(version, known.set_ms, known.fingerprint, text)


async def set_schema(node: ServedNode, request: SetSchema) -> SchemaSet:
    """Have a topic get another version. Raises ChangeRefused, TimeoutError."""
    await _learn_of(node, request.topic)
    check_no_mirror(node, find_topic(node, request.topic))
    return await set_version(node, request.topic, request.follows, request.schema)


async def set_version(node: ServedNode, name: str, follows: int, text: str) -> SchemaSet:
    """The same, of a mirror too. Raises ChangeRefused, TimeoutError."""
    schema = _parsed(text)
    _check_libraries(node, find_topic(node, name), schema)
    topic_id, now_ms = find_topic(node, name).topic_id, node.member.clock.wall_ms()
    command = SetSchemaCommand(topic_id, follows, schema.text, now_ms)
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(_CODES.get(outcome.code, FaultCode.OUT_OF_RANGE), outcome.message)
    topic = find_topic(node, name)
    is_new = [each.fingerprint for each in topic.schemas[follows:][:1]] == [schema.fingerprint]
    return SchemaSet(topic.name, follows + is_new, schema.fingerprint)


def _check_libraries(node: ServedNode, topic: Topic, schema: Schema) -> None:
    """Nodes that are to check records have to be able to. Raises ChangeRefused."""
    state = node.logs.machine.state
    if topic.topic_id not in state.schemas.enforced:
        return
    why = libraries.why_not_checked(node.peers.presence, state, [schema.format])
    if why:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, why, libraries.REMEDY)


def _parsed(text: str) -> Schema:
    try:
        return parse_schema(text)
    except BadSchema as error:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, str(error)) from error


# --- views ----------------------------------------------------------------------------------------


async def create_view(node: ServedNode, request: CreateView, identity: str) -> TopicInfo:
    """Have it created. Raises ChangeRefused, TimeoutError."""
    try:
        asked = parse_view(request.query)
        base = _base(node, asked.base, identity)
        command = _command(node, request.view, asked, base, identity)
    except BadFilter as error:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, str(error)) from error
    except ArrowMissing as error:
        raise ChangeRefused(FaultCode.NOT_READY, str(error), "ask another node") from error
    await _propose(node, command)
    return view_info(node, find_view(node, request.view))


def _base(node: ServedNode, name: str, identity: str) -> Topic:
    """Raises ChangeRefused."""
    if node.logs.machine.state.views.named(name) is not None or name.startswith(_OWN):
        text = f"{name!r} is no topic that views can stand on"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "name a topic that has records")
    base = find_topic(node, name)
    if not node.member.rights.may_subscribe(identity, name):
        text, remedy = f"{identity} may not read {name!r}", "grant subscribe_topics"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text, remedy)
    return base


def _command(
    node: ServedNode, name: str, asked: ViewText, base: Topic, owner: str
) -> CreateViewCommand:
    """Raises BadFilter, ArrowMissing."""
    version = len(base.schemas)
    made = uuid.uuid4().hex, name, base.topic_id, asked.where
    now_ms = node.member.clock.wall_ms()
    if version == NO_SCHEMA:
        Passing(RowsWanted(asked.where or None, asked.columns), {}, version)
        return CreateViewCommand(*made, [], version, {}, "", owner, now_ms)
    schema: Schema = node.logs.machine.state.schemas.schema_of(base.schemas[-1])
    columns = asked.columns or schema.names
    Passing(RowsWanted(asked.where or None, columns), {version: schema}, version)
    needed = sorted({*columns, *names_in(asked.where)})
    names = {each: schema.by_name[each].type.text for each in needed}
    text = projected(schema, columns).text
    return CreateViewCommand(*made, list(columns), version, names, text, owner, now_ms)


async def delete_topic_or_view(node: ServedNode, request: DeleteTopic) -> TopicInfo:
    """Have it deleted: what it was. Raises ChangeRefused, TimeoutError."""
    if not request.in_use:
        await check_unused(node, request.topic)
    view = node.logs.machine.state.views.named(request.topic)
    return await (delete_topic(node, request) if view is None else drop_view(node, view))


def describe_topic_or_view(
    node: ServedNode, request: DescribeTopic
) -> TopicDescription | StepWork[TopicDescription]:
    """One topic, or view. Raises ChangeRefused."""
    view = node.logs.machine.state.views.named(request.topic)
    return describe_topic(node, request) if view is None else describe_view(node, view)


async def drop_view(node: ServedNode, view: View) -> TopicInfo:
    """Have it dropped: what it was. Raises ChangeRefused, TimeoutError."""
    found = structs.replace(view_info(node, view), topic_id=view.topic_id)
    await _propose(node, DropViewCommand(view.topic_id))
    return found


async def _propose(node: ServedNode, command: CreateViewCommand | DropViewCommand) -> None:
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(_CODES.get(outcome.code, FaultCode.OUT_OF_RANGE), outcome.message)


def find_view(node: ServedNode, name: str) -> View:
    """A view by its name. Raises ChangeRefused."""
    view = node.logs.machine.state.views.named(name)
    if view is None:
        raise ChangeRefused(FaultCode.UNKNOWN_TOPIC, f"there is no view {name!r}")
    return view


def describe_view(node: ServedNode, view: View) -> TopicDescription:
    """One view: where its partitions begin and end, and what of them cannot be read."""
    base = node.logs.machine.state.topics.by_id[view.base_id]
    partitions = tuple(_view_partition(node, view, number) for number in base.partition_numbers)
    return TopicDescription(view_info(node, view), partitions)


def _view_partition(node: ServedNode, view: View, number: int) -> PartitionInfo:
    found = partition_info(node, number)
    unread, newest = node.member.filters.unread(number, rows_of_view(view))
    return PartitionInfo(
        topic=view.name,
        partition=found.partition,
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        durable_offset=found.durable_offset,
        segments=0,
        size_bytes=0,
        checksum=0,
        committed_offset=found.committed_offset,
        merged_offset=found.merged_offset,
        halted=found.halted,
        elsewhere=found.elsewhere,
        unread=unread,
        newest_unread=newest,
    )
