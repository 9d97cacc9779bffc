"""What commands about views change in the replicated state.

Invariant: a view's base is a living topic, which has every column that the view needs, of the type
that it had when the view was made; a name belongs to one topic or view (docs/typed.md, T26).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.format.names import EVENTS_TOPIC
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.feeds import RESERVED_NAMES
from samelog.sequencer.state.tables.schemas import TEXTS_BYTES_MOST, SchemaVersion
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.tables.views import (
    VIEWS_MOST,
    CreateViewCommand,
    DropViewCommand,
    View,
    log_of_view,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import forget_places
from samelog.typed.schema import BadSchema, Schema, parse_schema

VIEWS_NAMED = 10


def _create_view(state: State, command: CreateViewCommand) -> WhyNot:
    if command.topic_id in state.views.by_id:
        return None  # proposed twice, because its fate was not known
    problem = _problem_with(state, command)
    if problem is not None:
        return problem
    try:
        schema = parse_schema(command.schema) if command.schema else None
    except BadSchema as error:
        return "INVALID_SCHEMA", str(error)
    if schema is not None and not state.schemas.keep(schema):
        text = f"all schemas together have {TEXTS_BYTES_MOST} bytes, no more"
        return "TOO_MANY_SCHEMAS", text
    base = state.topics.by_id[command.base_id]
    state.views.put(_view(state, command, base, schema))
    return None


def _problem_with(state: State, command: CreateViewCommand) -> WhyNot:
    base = state.topics.by_id.get(command.base_id)
    if command.name in state.topics.by_name or state.views.named(command.name) is not None:
        return "TOPIC_EXISTS", f"topic {command.name!r} exists already"
    if command.name in RESERVED_NAMES or command.name == EVENTS_TOPIC:
        return "RESERVED_TOPIC", f"the name {command.name!r} is not for views"
    if base is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.base_id}"
    if len(state.views.by_id) >= VIEWS_MOST:
        return "TOO_MANY", f"a cluster has {VIEWS_MOST} views, and no more"
    lacking = _lacking(state, base, command.names)
    return None if lacking is None else ("SCHEMA_MOVED", lacking)


def _view(state: State, command: CreateViewCommand, base: Topic, schema: Schema | None) -> View:
    numbers = [state.partitions.next_number + index for index in range(base.partitions)]
    state.partitions.next_number += base.partitions
    return View(
        command.topic_id,
        command.name,
        command.base_id,
        command.where,
        command.columns,
        command.version,
        command.names,
        command.owner,
        command.at_ms,
        log_of_view(command.topic_id, base.log_id),
        numbers,
        None if schema is None else SchemaVersion(schema.fingerprint, command.at_ms),
    )


def _drop_view(state: State, command: DropViewCommand) -> WhyNot:
    view = state.views.take(command.topic_id)
    if view is None:
        return "UNKNOWN_TOPIC", f"no view has the id {command.topic_id}"
    del state.views.by_id[command.topic_id]
    if view.schema is not None:
        state.schemas.forget([view.schema])
    forget_places(state, _places(view))
    return None


def _places(view: View) -> dict[int, tuple[str, int]]:
    return {number: (view.name, index) for index, number in enumerate(view.partition_numbers)}


def _lacking(state: State, base: Topic, names: Mapping[str, str]) -> str | None:
    """Which column of the newest version is not there, or is another one."""
    if not base.schemas:
        return None if not names else f"topic {base.name!r} has no schema"
    return lacks(state.schemas.schema_of(base.schemas[-1]), names)


def lacks(schema: Schema, names: Mapping[str, str]) -> str | None:
    """Which of these columns a schema lacks, or has with another type."""
    for name, kind in names.items():
        column = schema.by_name.get(name)
        if column is None or column.type.text != kind:
            found = "is not there" if column is None else f"would be {column.type.text}"
            return f"column {name!r} ({kind}) {found}"
    return None


def why_not_changed(state: State, topic: Topic, schema: Schema) -> WhyNot:
    """Why a topic's schema cannot become this one: a view needs what it lacks."""
    for view in state.views.of_topic(topic.topic_id):
        problem = lacks(schema, view.names)
        if problem is not None:
            return "VIEWS_STAND", f"view {view.name!r} needs what {topic.name!r} has: {problem}"
    return None


def why_not_dropped(state: State, topic_id: str) -> WhyNot:
    """Why a topic cannot be deleted: views stand on it."""
    names = sorted(view.name for view in state.views.of_topic(topic_id))
    if not names:
        return None
    base, first = state.topics.by_id[topic_id].name, names[0]
    views = f"topic {base!r} has views: {', '.join(names[:VIEWS_NAMED])}"
    more = f" and {len(names) - VIEWS_NAMED} more" if len(names) > VIEWS_NAMED else ""
    command = f"samelog topic delete {first} --confirm {first}"
    return "VIEWS_STAND", f"{views}{more}; delete them before it, as with: {command}"


def begin_views_anew(state: State, topic: Topic) -> None:
    """Restart the logs of a topic's views after its own log; their partitions follow."""
    for view in state.views.of_topic(topic.topic_id):
        state.views.take(view.topic_id)
        view.former_logs.append(view.log_id)
        view.log_id = log_of_view(view.topic_id, topic.log_id)
        forget_places(state, _places(view))
        view.partition_numbers.clear()
        state.views.put(view)


VIEW_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    CreateViewCommand: _create_view,
    DropViewCommand: _drop_view,
}
