"""Partitions that pass from one data group to another: what the groups' states make of each step.

The source seals the partition: what is committed before that is all there is of it in that group,
and was all that was acknowledged. The target takes it up behind that, with everything that planning
knows of it. Whatever else the source's members hold, publishers and clients send to the target.

Invariant: a partition is never open in two groups; a step of an older task, and one that comes too
late, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from samelog.format.errors import InvariantError
from samelog.placement.tasks import Action
from samelog.placement.values import PartitionPass, PassStage
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.mirrors import Mirror
from samelog.sequencer.state.tables.partitions import Partition, decode_partition
from samelog.sequencer.state.tables.schemas import TEXTS_BYTES_MOST, SchemaVersion
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.stubs import keep_stub, stub_of
from samelog.typed.schema import parse_schema


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """What a group knows of a partition that moves, and of its topic."""

    topic_id: str
    name: str
    settings: dict[str, str]
    created_ms: int
    numbers: list[int]
    schemas: list[tuple[str, int]]
    """Text, and since when, of each version of the topic's schema."""
    tables: dict[str, bytes]
    """What each of `State.partition_tables` exports; of partitions and keys only, while the log is
    copied.
    """
    copy_targets: list[str] = []
    history: bytes = b""
    """Of what was archived, which is no replicated state; targets by their place in the list."""
    log_id: str = ""
    """That of the topic's log, if it was restarted: it had others."""
    former_logs: list[str] = []
    mirror: Mirror | None = None
    """What the topic is, or was, a mirror of."""

    @property
    def partition(self) -> Partition:
        """As it was in the group that had it."""
        return decode_partition(self.tables["partitions"])


# --- at the source --------------------------------------------------------------------------------


def carry(state: State, number: int, *, is_sealed: bool, history: bytes = b"") -> bytes:
    """What the target is given of a partition of this group; `history`: of what was archived."""
    topic = state.topics.by_id[state.partitions.by_number[number].topic_id]
    texts = state.schema_texts(topic.topic_id, len(topic.schemas))
    carried = Carried(
        topic.topic_id,
        topic.name,
        topic.settings,
        topic.created_ms,
        topic.partition_numbers,
        [(text, each.set_ms) for text, each in zip(texts, topic.schemas, strict=True)],
        {
            name: table.export(number)
            for name, table in state.partition_tables.items()
            if is_sealed or name in ("partitions", "keys")
        },
        state.copy_targets if is_sealed else [],
        history if is_sealed else b"",
        topic.present_log,
        topic.former_logs if topic.present_log else [],
        state.mirrors.topics.get(topic.topic_id),
    )
    return msgspec.msgpack.encode(carried)


def _hold(state: State, command: PassPartition) -> WhyNot:
    """The partition is copied from now on: its segments stay as they are."""
    number, stage = command.partition, state.transfers.pass_of(command.task)
    if stage is not None:
        is_held = stage is PassStage.HELD
        return None if is_held else ("OVERTAKEN", f"task {command.task} is {stage.name}")
    known = state.partitions.by_number.get(number)
    if known is None:
        return "UNKNOWN_TOPIC", f"partition {number} is gone"
    known.compactions.give_up_order()
    _enter(state, command, PassStage.HELD)
    return None


def _seal(state: State, command: PassPartition) -> WhyNot:
    number, stage = command.partition, state.transfers.pass_of(command.task)
    if stage is not PassStage.HELD:
        is_sealed, name = stage is PassStage.SEALED, "not held" if stage is None else stage.name
        return None if is_sealed else ("OVERTAKEN", f"task {command.task} is {name}")
    known = state.partitions.by_number.get(number)
    if known is None:
        return "UNKNOWN_TOPIC", f"partition {number} is gone"
    if state.open_transactions.stable_offset(number, known.next_offset) < known.next_offset:
        return "TRANSACTION_OPEN", f"a transaction is open in partition {number}"
    if state.stages.pins_partition(number):
        return "PINNED", f"a batch is being published in partition {number}"
    if state.sessions.holds_staged({number}):
        return "STAGED", f"records of partition {number} are staged, and not published"
    _enter(state, command, PassStage.SEALED)
    return None


def _forbid(state: State, command: PassPartition) -> WhyNot:
    stage = state.transfers.pass_of(command.task)
    if stage in (PassStage.SEALED, PassStage.GONE):
        return "OVERTAKEN", f"partition {command.partition} is sealed"
    _enter(state, command, PassStage.FORBIDDEN)
    return None


def _drop(state: State, command: PassPartition) -> WhyNot:
    """At the source, what is open in the target by now; there, what will not come after all."""
    number, stage = command.partition, state.transfers.pass_of(command.task)
    if stage is PassStage.OPEN:
        return "OVERTAKEN", f"partition {number} is open here"
    if stage in (PassStage.SEALED, PassStage.COPYING):
        _remove(state, number)
    if stage is PassStage.SEALED and state.placement.own:
        state.transfers.left.append(number)
    _enter(state, command, PassStage.GONE)
    return None


def _remove(state: State, number: int) -> None:
    if number not in state.partitions.by_number:
        return  # its topic was deleted
    stub = None if state.placement.own else stub_of(state, number)
    state.drop_partitions({number})
    if stub is not None:
        keep_stub(state, stub)


# --- at the target --------------------------------------------------------------------------------


def _copy(state: State, command: PassPartition) -> WhyNot:
    """The log is to be here. It may be told again that it goes further, or begins later."""
    number, stage = command.partition, state.transfers.pass_of(command.task)
    if stage not in (None, PassStage.COPYING):
        return "OVERTAKEN", f"task {command.task} is {stage.name}"
    if stage is None and number in state.partitions.by_number:
        return "ALREADY_HERE", f"partition {number} is in this group"
    carried, known = decoded(command), state.partitions.by_number.get(number)
    if known is None or known.next_offset <= carried.partition.next_offset:
        _take_up(state, carried, command)
    _enter(state, command, PassStage.COPYING)
    return None


def _open(state: State, command: PassPartition) -> WhyNot:
    number, stage = command.partition, state.transfers.pass_of(command.task)
    if stage is PassStage.OPEN:
        return None
    if stage is not PassStage.COPYING:
        return "OVERTAKEN", f"task {command.task} copies nothing into this group"
    if number not in state.partitions.by_number:
        return "UNKNOWN_TOPIC", f"partition {number} is gone"
    carried = decoded(command)
    problem = _why_not_open(state, carried)
    if problem is not None:
        return problem
    _take_up(state, carried, command)
    _take_up_schemas(state, carried, number)
    state.copy_targets += [url for url in carried.copy_targets if url not in state.copy_targets]
    _enter(state, command, PassStage.OPEN)
    return None


def _why_not_open(state: State, carried: Carried) -> WhyNot:
    older = state.sessions.in_the_way(carried.tables["sessions"])
    if older is not None:
        return "RUN_OPEN", f"run {older.run_id} is open here"
    if not _has_room_for_schemas(state, carried):
        return "TOO_MANY_SCHEMAS", f"there is no room for the schemas of {carried.name!r}"
    return None


def decoded(command: PassPartition) -> Carried:
    """What comes with a step of the target."""
    try:
        return msgspec.msgpack.decode(command.carried, type=Carried)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvariantError(f"unreadable partition {command.partition}: {error}") from error


def _take_up(state: State, carried: Carried, command: PassPartition) -> None:
    if carried.topic_id not in state.topics.by_id:
        topic = Topic(carried.topic_id, carried.name, carried.settings, carried.created_ms, [])
        topic.is_placed = True
        topic.present_log, topic.former_logs = carried.log_id, carried.former_logs
        state.topics.by_id[topic.topic_id] = topic
        state.topics.by_name[topic.name] = topic.topic_id
        topic.partition_numbers = carried.numbers
        state.follow_enforcing(topic)
        if carried.mirror is not None:
            state.mirrors.begin(topic.topic_id, carried.mirror, ())
    number = command.partition
    for name, exported in carried.tables.items():
        state.partition_tables[name].import_(number, exported)
    state.partitions.by_number[number].came = command.task


def _has_room_for_schemas(state: State, carried: Carried) -> bool:
    topic = state.topics.by_id[carried.topic_id]
    texts = [text for text, _ in carried.schemas[len(topic.schemas) :]]
    return state.schemas.size_bytes + sum(len(each.encode()) for each in texts) <= TEXTS_BYTES_MOST


def _take_up_schemas(state: State, carried: Carried, number: int) -> None:
    """The topic has as many versions as in the group that knows of more; what is behind the move is
    of the newest one.
    """
    topic = state.topics.by_id[carried.topic_id]
    others = [each for each in topic.partition_numbers if each in state.partitions.by_number]
    for version, (text, set_ms) in enumerate(carried.schemas, 1):
        if version > len(topic.schemas):
            schema = parse_schema(text)
            state.schemas.keep(schema)
            topic.schemas.append(SchemaVersion(schema.fingerprint, set_ms))
            for each in others:
                if each != number:
                    state.partitions.by_number[each].begin_version(version)
    for version in range(len(carried.schemas), len(topic.schemas)):
        state.partitions.by_number[number].begin_version(version + 1)


# --- both -----------------------------------------------------------------------------------------


def _enter(state: State, command: PassPartition, stage: PassStage) -> None:
    state.transfers.passing = PartitionPass(command.task, command.partition, stage)


def pass_partition(state: State, command: PassPartition) -> WhyNot:
    """Take a step of a task; why it is not taken, if it is not."""
    known = state.transfers.passing
    if known is not None and command.task < known.task:
        return "OVERTAKEN", f"task {known.task} is newer"
    problem = _STEPS[command.action](state, command)
    if problem is None:
        state.reindex()
    return problem


_STEPS: Mapping[Action, Callable[[State, PassPartition], WhyNot]] = {
    Action.COPY_PARTITION: _copy,
    Action.HOLD_PARTITION: _hold,
    Action.SEAL_PARTITION: _seal,
    Action.OPEN_PARTITION: _open,
    Action.DROP_PARTITION: _drop,
    Action.FORBID_SEAL: _forbid,
}
