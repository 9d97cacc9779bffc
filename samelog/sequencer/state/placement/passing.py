"""Partitions that pass from one data group to another: what the groups' states make of each step.

The source seals the partition: what is committed before that is all there is of it in that group,
and was all that was acknowledged. The target takes it up behind that, with everything that planning
knows of it. Whatever else the source's members hold, publishers and clients send to the target.

Invariant: a partition is never open in two groups; a step of an older task, and one that comes too
late, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.config.authorisation import NODE_PREFIX
from samelog.format.errors import InvariantError
from samelog.placement.tasks import Action
from samelog.placement.values import EPOCHS_PER_MOVE, PartitionPass, PassStage
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.commands import Sequence5
from samelog.sequencer.state.keys.key_state import has_keys
from samelog.sequencer.state.placement.commands import PassPartition
from samelog.sequencer.state.placement.leaving import epoch_base, keep_stub
from samelog.sequencer.state.schemas import TEXTS_BYTES_MOST, SchemaVersion
from samelog.sequencer.state.transactions.state import LogTransactions
from samelog.sequencer.state.types import Input, Partition, Run, Session, State, Topic
from samelog.typed.schema import parse_schema
from samelog.wire.refusals import RefusedBatch

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class CarriedInput(msgspec.Struct, frozen=True, array_like=True):
    """A session's part of a partition, with the run that it is in, merged up to (roll, byte)."""

    session: str
    session_id: str
    identity: str
    idle_since_ms: int
    run: Run
    roll: int
    byte: int
    last_id: int | None
    refused: list[RefusedBatch] = []


class CarriedPartition(msgspec.Struct, frozen=True, array_like=True):
    """What a group knows of a partition. Without `inputs` and what follows, while it is only
    copied.
    """

    topic_id: str
    name: str
    settings: dict[str, str]
    created_ms: int
    numbers: list[int]
    partition: Partition
    epoch_base: int
    schemas: list[tuple[str, int]]
    """Text, and since when, of each version of the topic's schema."""
    inputs: list[CarriedInput] = []
    producers: dict[int, list[Sequence5]] = {}
    producers_seen: dict[int, int] = {}
    watermarks: dict[str, int] = {}
    transactions: LogTransactions | None = None
    copy_targets: list[str] = []
    history: bytes = b""
    """Of what was archived, which is no replicated state; targets by their place in the list."""


class Carried(CarriedPartition, frozen=True, array_like=True):
    """All of it. `log_id` is that of the topic's log, if it was restarted: it had others."""

    log_id: str = ""
    former_logs: list[str] = []


# --- at the source --------------------------------------------------------------------------------


def carry(state: State, number: int, *, is_sealed: bool, history: bytes = b"") -> bytes:
    """What the target is given of a partition of this group; `history`: of what was archived."""
    partition = state.partitions[number]
    topic = state.topics[partition.topic_id]
    whose = topic.topic_id, topic.name, dict(topic.settings), topic.created_ms
    base = epoch_base(state, number)
    texts = state.schema_texts(topic.topic_id, len(topic.schemas))
    schemas = [(text, each.set_ms) for text, each in zip(texts, topic.schemas, strict=True)]
    carried = Carried(*whose, list(topic.partition_numbers), partition, base, schemas)
    if topic.present_log:
        logs = topic.present_log, list(topic.former_logs)
        carried = msgspec.structs.replace(carried, log_id=logs[0], former_logs=logs[1])
    if is_sealed:
        producers = _of(number, state.producers)
        carried = msgspec.structs.replace(
            carried,
            inputs=list(_inputs(state, number)),
            producers=producers,
            producers_seen={p: state.producers_seen.get(p, 0) for p in producers},
            watermarks=_of(number, state.watermarks),
            transactions=state.transactions.logs.get(number),
            copy_targets=list(state.copy_targets),
            history=history,
        )
    return msgspec.msgpack.encode(carried)


def _of(partition: int, known: Mapping[KeyT, Mapping[int, ValueT]]) -> dict[KeyT, ValueT]:
    return {key: each[partition] for key, each in known.items() if partition in each}


def _inputs(state: State, number: int) -> Iterator[CarriedInput]:
    """Of publishers: a node has a session of its own in each group."""
    for entry in state.inputs.values():
        session = state.sessions[entry.session]
        is_nodes = session.identity.startswith(NODE_PREFIX)
        if entry.partition == number and session.runs and not is_nodes:
            whose = session.name, session.session_id, session.identity, session.idle_since_ms
            run = msgspec.structs.replace(session.runs[-1], ends=[])
            place = entry.roll, entry.byte, entry.last_id
            yield CarriedInput(*whose, run, *place, entry.refused)


def _seal(state: State, command: PassPartition) -> WhyNot:
    number, stage = command.partition, state.placement.pass_of(command.task)
    if stage is not None:
        is_sealed = stage is PassStage.SEALED
        return None if is_sealed else ("OVERTAKEN", f"task {command.task} is {stage.name}")
    known = state.partitions.get(number)
    if known is None:
        return "UNKNOWN_TOPIC", f"partition {number} is gone"
    if known.compacted is not None or is_compacted(_policy_of(state, known)):
        return "COMPACTED", f"partition {number} is compacted: it moves with its group only"
    if number in state.keyed:
        return "KEYED", f"keys of partition {number} count once: it moves with its group only"
    if state.transactions.stable_offset(number, known.next_offset) < known.next_offset:
        return "TRANSACTION_OPEN", f"a transaction is open in partition {number}"
    if state.transactions.spanning.pins_partition(number):
        return "PINNED", f"a batch is being published in partition {number}"
    if _is_staged(state, number):
        return "STAGED", f"records of partition {number} are staged, and not published"
    _enter(state, command, PassStage.SEALED)
    return None


def why_together(topic: Topic, here: Iterable[Partition]) -> str | None:
    """Why partitions of a topic can only move with their groups, as a seal would be refused for
    ever; None: they can move alone. `here`: those whose group's state is at hand.
    """
    if is_compacted(topic.settings.get(CLEANUP_POLICY, "")):
        why = "is compacted"
    elif has_keys(topic.settings):
        why = "has keys that count once (dedup.key)"
    elif any(each.compacted is not None for each in here):
        why = "was compacted once"
    else:
        return None
    return f"topic {topic.name!r} {why}: its partitions move with their groups only"


def _policy_of(state: State, partition: Partition) -> str:
    return state.topics[partition.topic_id].settings.get(CLEANUP_POLICY, "")


def _is_staged(state: State, number: int) -> bool:
    """Whether records wait to be published with others, all or nothing."""
    sessions = {each.session for each in state.inputs.values() if each.partition == number}
    runs = (_newest_run(state, each) for each in sessions)
    return any(run is not None and run.is_held and not run.closed for run in runs)


def _forbid(state: State, command: PassPartition) -> WhyNot:
    stage = state.placement.pass_of(command.task)
    if stage in (PassStage.SEALED, PassStage.GONE):
        return "OVERTAKEN", f"partition {command.partition} is sealed"
    _enter(state, command, PassStage.FORBIDDEN)
    return None


def _drop(state: State, command: PassPartition) -> WhyNot:
    """At the source, what is open in the target by now; there, what will not come after all."""
    number, stage = command.partition, state.placement.pass_of(command.task)
    if stage is PassStage.OPEN:
        return "OVERTAKEN", f"partition {number} is open here"
    if stage in (PassStage.SEALED, PassStage.COPYING):
        _remove(state, number)
    if stage is PassStage.SEALED and state.placement.own:
        state.placement.left.append(number)
    _enter(state, command, PassStage.GONE)
    return None


def _remove(state: State, number: int) -> None:
    if number not in state.partitions:
        return  # its topic was deleted
    if state.placement.own:
        del state.partitions[number]
        for entry in [each for each in state.inputs.values() if each.partition == number]:
            del state.inputs[entry.number]
    else:
        keep_stub(state, number)
    for known in state.producers.values():
        known.pop(number, None)
    for places in state.watermarks.values():
        places.pop(number, None)
    state.transactions.logs.pop(number, None)
    state.placement.epoch_bases.pop(number, None)
    state.keyed.pop(number, None)


# --- at the target --------------------------------------------------------------------------------


def _copy(state: State, command: PassPartition) -> WhyNot:
    """The log is to be here. It may be told again that it goes further, or begins later."""
    number, stage = command.partition, state.placement.pass_of(command.task)
    if stage not in (None, PassStage.COPYING):
        return "OVERTAKEN", f"task {command.task} is {stage.name}"
    if stage is None and number in state.partitions:
        return "ALREADY_HERE", f"partition {number} is in this group"
    carried, known = decoded(command), state.partitions.get(number)
    if known is None or known.next_offset <= carried.partition.next_offset:
        _take_up(state, carried, command.task)
    _enter(state, command, PassStage.COPYING)
    return None


def _open(state: State, command: PassPartition) -> WhyNot:
    number, stage = command.partition, state.placement.pass_of(command.task)
    if stage is PassStage.OPEN:
        return None
    if stage is not PassStage.COPYING:
        return "OVERTAKEN", f"task {command.task} copies nothing into this group"
    if number not in state.partitions:
        return "UNKNOWN_TOPIC", f"partition {number} is gone"
    carried = decoded(command)
    if (older := next(_older_runs(state, carried), None)) is not None:
        return "RUN_OPEN", f"run {older.run_id} is open here"
    if not _has_room_for_schemas(state, carried):
        return "TOO_MANY_SCHEMAS", f"there is no room for the schemas of {carried.name!r}"
    _take_up(state, carried, command.task)
    _take_up_schemas(state, carried)
    state.placement.epoch_bases[number] = carried.epoch_base + EPOCHS_PER_MOVE
    for each in carried.inputs:
        _take_up_input(state, number, each)
    _take_up_knowledge(state, number, carried)
    state.placement.left = [each for each in state.placement.left if each != number]
    _enter(state, command, PassStage.OPEN)
    return None


def decoded(command: PassPartition) -> Carried:
    """What comes with a step of the target."""
    try:
        return msgspec.msgpack.decode(command.carried, type=Carried)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvariantError(f"unreadable partition {command.partition}: {error}") from error


def _take_up(state: State, carried: Carried, task: int) -> None:
    topic, number = state.topics.get(carried.topic_id), carried.partition.number
    if topic is None:
        topic = Topic(carried.topic_id, carried.name, carried.settings, carried.created_ms, [])
        topic.is_placed = True
        topic.present_log, topic.former_logs = carried.log_id, carried.former_logs
        state.topics[topic.topic_id] = topic
        state.names[topic.name] = topic.topic_id
        topic.partition_numbers = carried.numbers
        state.follow_enforcing(topic)
    state.partitions[number] = carried.partition
    carried.partition.came = task
    state.next_partition = max(state.next_partition, number + 1)


def _has_room_for_schemas(state: State, carried: Carried) -> bool:
    topic = state.topics[carried.topic_id]
    texts = [text for text, _ in carried.schemas[len(topic.schemas) :]]
    return state.schemas.size_bytes + sum(len(each.encode()) for each in texts) <= TEXTS_BYTES_MOST


def _take_up_schemas(state: State, carried: Carried) -> None:
    """The topic has as many versions as in the group that knows of more; what is behind the move is
    of the newest one.
    """
    topic, number = state.topics[carried.topic_id], carried.partition.number
    others = [each for each in topic.partition_numbers if each in state.partitions]
    for version, (text, set_ms) in enumerate(carried.schemas, 1):
        if version > len(topic.schemas):
            schema = parse_schema(text)
            state.schemas.keep(schema)
            topic.schemas.append(SchemaVersion(schema.fingerprint, set_ms))
            for each in others:
                if each != number:
                    state.partitions[each].begin_version(version)
    for version in range(len(carried.schemas), len(topic.schemas)):
        state.partitions[number].begin_version(version + 1)


def _older_runs(state: State, carried: Carried) -> Iterator[Run]:
    """Those that are open here, and have to end before a partition's runs go on here."""
    for each in carried.inputs:
        newest = _newest_run(state, each.session)
        if newest is not None and not newest.closed and newest.number < each.run.number:
            yield newest


def _newest_run(state: State, session: str) -> Run | None:
    known = state.sessions.get(session)
    return known.runs[-1] if known is not None and known.runs else None


def _take_up_input(state: State, number: int, carried: CarriedInput) -> None:
    """An input goes on where it is merged; so does its run, though it may have ended here."""
    run = _run_here(state, carried)
    if run is None:
        return  # nothing comes of that run any more
    entry = Input(state.next_input, carried.session, number, run.number)
    entry.roll, entry.byte, entry.last_id = carried.roll, carried.byte, carried.last_id
    entry.refused = [each._replace(input=entry.number) for each in carried.refused]
    state.next_input += 1
    state.inputs[entry.number] = entry
    session = state.sessions[carried.session]
    if not carried.run.closed:
        run.closed, run.ends, session.idle_since_ms = False, [], -1
    elif run.closed:
        run.ends.append((entry.number, entry.roll, entry.byte))
        session.idle_since_ms = max(session.idle_since_ms, carried.idle_since_ms)


def _run_here(state: State, carried: CarriedInput) -> Run | None:
    """The run of an input in this group, begun if need be; None: a newer one was."""
    session, newest = state.sessions.get(carried.session), _newest_run(state, carried.session)
    whose = carried.session, carried.session_id, carried.identity
    if session is None:
        session = state.sessions[carried.session] = Session(*whose)
    if newest is not None and newest.number == carried.run.number:
        return newest
    if carried.run.number < (session.next_run if newest is None else newest.number):
        return None
    session.name, session.session_id, session.identity = whose
    for entry in state.inputs.values():
        if entry.session == session.name:
            entry.run, entry.roll, entry.byte, entry.last_id = carried.run.number, 0, 0, None
    run = msgspec.structs.replace(carried.run)
    session.runs.append(run)
    return run


def _take_up_knowledge(state: State, number: int, carried: Carried) -> None:
    for producer, batches in carried.producers.items():
        state.producers.setdefault(producer, {})[number] = batches
        seen_ms = carried.producers_seen.get(producer, 0)
        state.producers_seen[producer] = max(seen_ms, state.producers_seen.get(producer, 0))
    for dedup_id, highest in carried.watermarks.items():
        state.watermarks.setdefault(dedup_id, {})[number] = highest
    state.copy_targets += [url for url in carried.copy_targets if url not in state.copy_targets]
    if carried.transactions is not None:
        state.transactions.logs[number] = carried.transactions


# --- both -----------------------------------------------------------------------------------------


def _enter(state: State, command: PassPartition, stage: PassStage) -> None:
    state.placement.passing = PartitionPass(command.task, command.partition, stage)


def pass_partition(state: State, command: PassPartition) -> WhyNot:
    """Take a step of a task; why it is not taken, if it is not."""
    known = state.placement.passing
    if known is not None and command.task < known.task:
        return "OVERTAKEN", f"task {known.task} is newer"
    return _STEPS[command.action](state, command)


_STEPS: Mapping[Action, Callable[[State, PassPartition], WhyNot]] = {
    Action.COPY_PARTITION: _copy,
    Action.SEAL_PARTITION: _seal,
    Action.OPEN_PARTITION: _open,
    Action.DROP_PARTITION: _drop,
    Action.FORBID_SEAL: _forbid,
}
