"""What is told of the cluster's life, as records of the topic `__events`, if there is one.

The command that changes something numbers what is to be told, so every node has the same events in
the same order. The leader of the group that has the topic writes them to it; the number is the id
of the record, so the topic has each of them once, in order, under every leader.

Invariant: an event has one number, of which only recoveries and promotions leave some out; it waits
until the topic is known to have it. Without the topic nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from samelog.archiver.command import ArchiveCommand
from samelog.format.names import EVENTS_TOPIC
from samelog.format.nouns import counted
from samelog.placement.changes import StartTask, TurnTask
from samelog.sequencer.state.instructions import VoidRecordsCommand
from samelog.sequencer.state.tables.events import (
    NOT_SAID,
    EventsWritten,
    Happened,
    NoteElection,
    RecordEvent,
)
from samelog.sequencer.state.tables.members import (
    LetIn,
    NodeStarted,
    RaiseLevel,
    SetMaintenanceCommand,
    SetMembers,
)
from samelog.sequencer.state.tables.mirrors import MirrorGap
from samelog.sequencer.state.tables.placement import (
    ChangePlacement,
    LowerOffsets,
    PlacePartitions,
    PlaceTopic,
)
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.sites import (
    AddSite,
    PromoteSiteCommand,
    RemoveSite,
    SetSiteLeads,
    SetSiteVotes,
    ToldChange,
    site_event,
)
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
    Topic,
)
from samelog.sequencer.state.tables.views import CreateViewCommand, DropViewCommand
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import gap_to_come
from samelog.sequencer.state.units.recovered_offsets import recovery_events


def topic_of_events(state: State) -> Topic | None:
    """The topic, if there is one."""
    topic_id = state.topics.by_name.get(EVENTS_TOPIC)
    return None if topic_id is None else state.topics.by_id[topic_id]


def note_events(state: State, found: Iterable[Happened]) -> None:
    """These are to be told."""
    topic = topic_of_events(state)
    if topic is None:
        state.events.waiting.clear()
        return
    state.events.wait(found)


def events_written(state: State, command: EventsWritten) -> None:
    """The topic has events up to this number, unless it is another one by now."""
    topic = topic_of_events(state)
    if topic is not None and topic.topic_id == command.topic_id:
        state.events.written(command.number)


# --- by command -----------------------------------------------------------------------------------


def _name(state: State, topic_id: str) -> str:
    topic = state.topics.by_id.get(topic_id)
    return "" if topic is None else topic.name


def _made(state: State, command: CreateTopicCommand | PlaceTopic) -> Iterable[Happened]:
    if command.topic_id not in state.topics.by_id:  # it is not asked for again
        text = counted(command.partitions, "partition")
        yield command.at_ms, "topic created", command.name, text


def _deleted(state: State, command: DeleteTopicCommand) -> Iterable[Happened]:
    yield NOT_SAID, "topic deleted", _name(state, command.topic_id), ""


def _viewed(state: State, command: CreateViewCommand) -> Iterable[Happened]:
    if command.topic_id not in state.views.by_id:  # it is not asked for again
        text = f"a view of {_name(state, command.base_id)}"
        yield command.at_ms, "topic created", command.name, text


def _view_dropped(state: State, command: DropViewCommand) -> Iterable[Happened]:
    view = state.views.by_id.get(command.topic_id)
    if view is not None:
        text = f"a view of {_name(state, view.base_id)}"
        yield NOT_SAID, "topic deleted", view.name, text


def _altered(state: State, command: AlterTopicCommand) -> Iterable[Happened]:
    changes = [f"{key}={value}" for key, value in sorted(command.settings.items())]
    changes += [f"{key} as by default" for key in command.unset]
    yield NOT_SAID, "topic altered", _name(state, command.topic_id), ", ".join(changes)[:1000]


def _widened(state: State, command: AddPartitions | PlacePartitions) -> Iterable[Happened]:
    text = counted(command.partitions, "partition")
    yield NOT_SAID, "topic altered", _name(state, command.topic_id), text


def _typed(state: State, command: SetSchemaCommand) -> Iterable[Happened]:
    text = f"schema version {command.follows + 1}"
    yield command.at_ms, "topic altered", _name(state, command.topic_id), text


def _emptied(state: State, command: ArchiveCommand) -> Iterable[Happened]:
    partition = state.partitions.by_number.get(command.partition)
    if partition is not None and command.reason.startswith(("truncated by", "deleted by")):
        name = f"{_name(state, partition.topic_id)}-{partition.index}"
        text = f"records below offset {command.offset}, {command.reason}"
        yield command.at_ms, "records deleted", name, text[:1000]


def _joined(state: State, command: SetMembers) -> Iterable[Happened]:
    before = {number: member.name for number, member in state.members.by_number.items()}
    after = {member.number: member.name for member in command.members}
    for number in sorted(after.keys() - before.keys()):
        yield NOT_SAID, "member added", after[number], f"member {number}"
    for number in sorted(before.keys() - after.keys()):
        yield NOT_SAID, "member removed", before[number], f"member {number}"


def _started(state: State, command: NodeStarted) -> Iterable[Happened]:
    yield NOT_SAID, "member started", command.node, ""


def _let_in(state: State, command: LetIn) -> Iterable[Happened]:
    member = state.members.by_number.get(command.number)
    yield NOT_SAID, "member let in", "" if member is None else member.name, "it had forgotten"


def _maintained(state: State, command: SetMaintenanceCommand) -> Iterable[Happened]:
    text = f"until {command.until_ms} ms" if command.until_ms else "over"
    for node in command.nodes:
        yield NOT_SAID, "maintenance", node, text


def _recorded(state: State, command: RecordEvent) -> Iterable[Happened]:
    yield command.at_ms, command.kind, "", command.text


def _raised(state: State, command: RaiseLevel) -> Iterable[Happened]:
    yield command.at_ms, "level raised", "", f"feature level {command.level}"


def _voided(state: State, command: VoidRecordsCommand) -> Iterable[Happened]:
    partition = state.partitions.by_number.get(command.partition)
    name = "" if partition is None else f"{_name(state, partition.topic_id)}-{partition.index}"
    text = f"offsets {command.base_offset} to {command.next_offset - 1} were given up"
    yield command.at_ms, "damage", name, text


def _reset(state: State, command: SoftReset | HardReset) -> Iterable[Happened]:
    kind = "soft reset" if isinstance(command, SoftReset) else "hard reset"
    yield command.at_ms, kind, "", command.reset_id


def _placed(state: State, command: ChangePlacement) -> Iterable[Happened]:
    for change in command.changes:
        if isinstance(change, StartTask):
            task = change.task
            text = f"{task.kind.name.lower().replace('_', ' ')} in group {task.group}"
            yield task.began_ms, "task began", str(task.number), f"{text}: {task.reason}"[:1000]
        elif isinstance(change, TurnTask):
            text = f"{change.state.name.lower()} {change.reason}".rstrip()
            yield NOT_SAID, "task", str(change.number), text[:1000]


def _lowered(state: State, command: LowerOffsets) -> Iterable[Happened]:
    for event in recovery_events(state, command):
        yield event.at_ms, event.kind, f"group {command.group}", event.text


def _changed_sites(_state: State, command: ToldChange) -> Iterable[Happened]:
    event = site_event(command)
    name = command.site if isinstance(command, PromoteSiteCommand) else command.name
    yield event.at_ms, event.kind, name, event.text


def _left_gap(state: State, command: MirrorGap) -> Iterable[Happened]:
    event = gap_to_come(state, command)
    if event is not None:
        partition = state.partitions.by_number[command.partition]
        name = f"{_name(state, partition.topic_id)}-{partition.index}"
        yield event.at_ms, event.kind, name, event.text


def _elected(state: State, command: NoteElection) -> Iterable[Happened]:
    if command.term > state.events.term:
        yield command.at_ms, "election", command.node, f"leads in term {command.term}"


TELLERS: Mapping[type, Callable[[Any, Any], Iterable[Happened]]] = {
    CreateTopicCommand: _made,
    PlaceTopic: _made,
    DeleteTopicCommand: _deleted,
    CreateViewCommand: _viewed,
    DropViewCommand: _view_dropped,
    AlterTopicCommand: _altered,
    AddPartitions: _widened,
    PlacePartitions: _widened,
    SetSchemaCommand: _typed,
    ArchiveCommand: _emptied,
    SetMembers: _joined,
    NodeStarted: _started,
    LetIn: _let_in,
    SetMaintenanceCommand: _maintained,
    RecordEvent: _recorded,
    RaiseLevel: _raised,
    VoidRecordsCommand: _voided,
    SoftReset: _reset,
    HardReset: _reset,
    ChangePlacement: _placed,
    LowerOffsets: _lowered,
    AddSite: _changed_sites,
    RemoveSite: _changed_sites,
    PromoteSiteCommand: _changed_sites,
    SetSiteVotes: _changed_sites,
    SetSiteLeads: _changed_sites,
    MirrorGap: _left_gap,
    NoteElection: _elected,
}
"""What a command that is about to be applied will have made happen."""
