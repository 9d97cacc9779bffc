"""What commands about schemas change in the replicated state.

Invariant: a version never changes, and lasts as long as its topic; each follows the one that its
author saw, and is compatible with it as the topic's setting says (docs/typed.md, T4, T5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.sequencer.state.instructions import NO_EXTRAS, Merge
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.schemas import TEXTS_BYTES_MOST, SchemaVersion, SetSchemaCommand
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.views import why_not_changed
from samelog.typed.compatibility import BY_DEFAULT, COMPATIBILITY, Compatibility, problems_between
from samelog.typed.schema import BadSchema, Schema, parse_schema
from samelog.typed.versions import VERSIONS_MOST


def mode_of(settings: Mapping[str, str]) -> Compatibility:
    """How a topic's versions must follow each other."""
    return Compatibility(settings.get(COMPATIBILITY, BY_DEFAULT.value))


def _set_schema(state: State, command: SetSchemaCommand) -> tuple[str, str] | None:
    topic = state.topics.by_id.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    try:
        schema = parse_schema(command.text)
    except BadSchema as error:
        return "INVALID_SCHEMA", str(error)
    newest = len(topic.schemas)
    is_same = bool(newest) and topic.schemas[-1].fingerprint == schema.fingerprint
    if is_same and newest - command.follows in (0, 1):
        return None  # proposed twice, because its fate was not known; or nothing new
    if command.follows != newest:
        return "SCHEMA_MOVED", f"the newest version of {topic.name!r} is {newest}"
    problem = _misfit(state, topic, schema, is_agreed=_is_agreed(state, topic))
    if problem is not None:
        return problem
    topic.schemas.append(SchemaVersion(schema.fingerprint, command.at_ms))
    for number in topic.partition_numbers:
        if number in state.partitions.by_number:  # in a data group, some are elsewhere
            state.partitions.by_number[number].begin_version(newest + 1)
    return None


def _is_agreed(state: State, topic: Topic) -> bool:
    """Whether somebody else has found that what comes fits: group 0, or a mirror's source."""
    return bool(state.placement.own) or state.mirrors.of_topic(topic.topic_id) is not None


def _misfit(
    state: State, topic: Topic, schema: Schema, *, is_agreed: bool
) -> tuple[str, str] | None:
    """Why a schema cannot be a topic's next version. Keeps its text if it can. `is_agreed`: group 0
    has found that it fits, with the settings that the topic had then, or a mirror's source.
    """
    problem = why_not_changed(state, topic, schema)
    if problem is not None:
        return problem
    if topic.schemas and not is_agreed:
        newest = state.schemas.schema_of(topic.schemas[-1])
        problems = problems_between(mode_of(topic.settings), schema, newest)
        if problems:
            return "INCOMPATIBLE_SCHEMA", "; ".join(problems)
    if len(topic.schemas) >= VERSIONS_MOST:
        return "TOO_MANY_SCHEMAS", f"{topic.name!r} has {VERSIONS_MOST} versions, and no more"
    if not state.schemas.keep(schema):
        return "TOO_MANY_SCHEMAS", f"all schemas together have {TEXTS_BYTES_MOST} bytes, no more"
    return None


# --- records that nodes check ---------------------------------------------------------------------


def why_unchecked(state: State, partition: Partition, command: Merge) -> str | None:
    """Why an instruction does not count, if records of its topic are checked."""
    extras = command.extras or NO_EXTRAS
    if partition.topic_id not in state.schemas.enforced or extras.mirrored is not None:
        return None
    newest = len(state.topics.by_id[partition.topic_id].schemas)
    if extras.version is not None:
        is_judged = extras.version == newest
        return None if is_judged else f"judged by version {extras.version}, there is {newest}"
    has_records = any(part.records for part in command.ranges)
    if not newest or not has_records or _is_staged(state, command):
        return None
    return f"records of partition {partition.number} that nobody has checked"


def _is_staged(state: State, command: Merge) -> bool:
    """Whether records were staged, which began before they were to be checked."""
    inputs = [state.sessions.inputs.get(part.input) for part in command.ranges]
    sessions = [state.sessions.by_name.get(each.session) for each in inputs if each is not None]
    return any(each is not None and each.is_staged for each in sessions)


def why_not_enforced(state: State, topic: Topic) -> str | None:
    """Why records of a topic cannot be checked from now on."""
    numbers = set(topic.partition_numbers)
    for entry in state.sessions.inputs.values():
        session = state.sessions.by_name.get(entry.session)
        if entry.partition in numbers and session is not None and session.is_staged:
            run = session.runs[-1]
            if run.is_held and not run.closed:
                return f"records of {topic.name!r} are staged, and not published"
    return None


SCHEMA_CHANGES: Mapping[type, Callable[[Any, Any], tuple[str, str] | None]] = {
    SetSchemaCommand: _set_schema
}
