"""Instructions for topics whose records nodes check (`schema.enforce=node`), and what is remembered
of records that were refused.

Invariant: a record of such a topic is merged only by an instruction that names the version it was
judged by, which is the newest; what was refused is remembered until who published it has kept it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from samelog.config.authorisation import NODE_PREFIX
from samelog.sequencer.state.instructions import NO_EXTRAS, Merge
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import ForgetRefused
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.wire.refusals import RefusedBatch


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


def note_refused(state: State, refused: Iterable[RefusedBatch]) -> None:
    """Remember refused batches for their publishers. Clients of nodes have their answer."""
    for batch in refused:
        entry = state.sessions.inputs[batch.input]
        if not state.sessions.by_name[entry.session].identity.startswith(NODE_PREFIX):
            entry.refused.append(batch)


def _forget_refused(state: State, command: ForgetRefused) -> tuple[str, str] | None:
    entry = state.sessions.inputs.get(command.input)
    if entry is not None:
        kept = command.run, command.roll, command.start
        entry.refused = [each for each in entry.refused if each.place > kept]
    return None


VALIDATION_CHANGES: Mapping[type, Callable[[Any, Any], tuple[str, str] | None]] = {
    ForgetRefused: _forget_refused
}
