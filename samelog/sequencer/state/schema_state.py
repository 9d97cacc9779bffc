"""What the replicated state machine knows of schemas, and how commands change it.

Invariant: a version never changes, and lasts as long as its topic; each follows the one that its
author saw, and is compatible with it as the topic's setting says (docs/typed.md, T4, T5, T14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from samelog.sequencer.state.schema_commands import SetSchemaCommand
from samelog.typed.compatibility import (
    BY_DEFAULT,
    COMPATIBILITY,
    Compatibility,
    problems_between,
)
from samelog.typed.schema import BadSchema, Schema, parse_schema
from samelog.typed.versions import VERSIONS_MOST

if TYPE_CHECKING:
    from samelog.sequencer.state.types import Partition, State, Topic

TEXTS_BYTES_MOST = 16 << 20
"""Of all texts together."""
Problem = tuple[str, str] | None


class SchemaVersion(msgspec.Struct, frozen=True, array_like=True):
    """One version of a topic's schema: which text it is, and since when."""

    identity: str
    set_ms: int


class KeptText(msgspec.Struct, array_like=True):
    """A schema's text, and how many versions of all topics it is."""

    text: str
    uses: int = 0


class Schemas(msgspec.Struct):
    """The texts of all versions of all topics, by identity: equal ones once."""

    texts: dict[str, KeptText] = {}
    size_bytes: int = 0

    def keep(self, schema: Schema) -> bool:
        """Whether there is room for it."""
        known = self.texts.get(schema.identity)
        if known is None:
            size = len(schema.text.encode())
            if self.size_bytes + size > TEXTS_BYTES_MOST:
                return False
            known = self.texts[schema.identity] = KeptText(schema.text)
            self.size_bytes += size
        known.uses += 1
        return True

    def forget(self, versions: Sequence[SchemaVersion]) -> None:
        """Their topic is deleted."""
        for version in versions:
            kept = self.texts[version.identity]
            kept.uses -= 1
            if not kept.uses:
                del self.texts[version.identity]
                self.size_bytes -= len(kept.text.encode())

    def schema_of(self, version: SchemaVersion) -> Schema:
        """What a version is."""
        return parse_schema(self.texts[version.identity].text)


def mode_of(settings: Mapping[str, str]) -> Compatibility:
    """How a topic's versions must follow each other."""
    return Compatibility(settings.get(COMPATIBILITY, BY_DEFAULT.value))


def begin(partition: Partition, topic: Topic) -> None:
    """From its next offset on, the topic's newest version is in force in a partition."""
    since = partition.schema_since
    if since and since[-1][0] == partition.next_offset:
        since.pop()  # no record has it
    if topic.schemas:
        since.append((partition.next_offset, len(topic.schemas)))


def _set_schema(state: State, command: SetSchemaCommand) -> Problem:
    topic = state.topics.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    try:
        schema = parse_schema(command.text)
    except BadSchema as error:
        return "INVALID_SCHEMA", str(error)
    newest = len(topic.schemas)
    is_same = bool(newest) and topic.schemas[-1].identity == schema.identity
    if is_same and newest - command.follows in (0, 1):
        return None  # proposed twice, because its fate was not known; or nothing new
    if command.follows != newest:
        return "SCHEMA_MOVED", f"the newest version of {topic.name!r} is {newest}"
    problem = _misfit(state, topic, schema)
    if problem is not None:
        return problem
    topic.schemas.append(SchemaVersion(schema.identity, command.at_ms))
    for number in topic.partition_numbers:
        begin(state.partitions[number], topic)
    return None


def _misfit(state: State, topic: Topic, schema: Schema) -> Problem:
    """Why a schema cannot be a topic's next version. Keeps its text if it can."""
    if topic.schemas:
        newest = state.schemas.schema_of(topic.schemas[-1])
        problems = problems_between(mode_of(topic.settings), schema, newest)
        if problems:
            return "INCOMPATIBLE_SCHEMA", "; ".join(problems)
    if len(topic.schemas) >= VERSIONS_MOST:
        return "TOO_MANY_SCHEMAS", f"{topic.name!r} has {VERSIONS_MOST} versions, and no more"
    if not state.schemas.keep(schema):
        return "TOO_MANY_SCHEMAS", f"all schemas together have {TEXTS_BYTES_MOST} bytes, no more"
    return None


SCHEMA_CHANGES: Mapping[type, Callable[[Any, Any], Problem]] = {SetSchemaCommand: _set_schema}
