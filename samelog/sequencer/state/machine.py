"""The replicated state machine: the same commands in the same order give the same state on every
node.

A command goes to its table, or to the unit that knows all tables that it touches. The machine knows
nothing of files: whether merged bytes are already written here is the merger's cursor, not this one
(docs/ARCHITECTURE.md, "Two cursors").

Invariant: a command whose preconditions do not hold changes nothing and answers with a Rejection,
on every node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from samelog.archiver.command import ArchiveCommand
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.command_base import Rejection, WhyNot
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Merge, VoidRecordsCommand
from samelog.sequencer.state.tables.access import ACCESS_COMMANDS
from samelog.sequencer.state.tables.events import EventsWritten, NoteElection, RecordEvent
from samelog.sequencer.state.tables.groups import GROUP_COMMANDS
from samelog.sequencer.state.tables.members import NodeStarted
from samelog.sequencer.state.tables.mirrors import FollowSource
from samelog.sequencer.state.tables.partitions import Checkpoint
from samelog.sequencer.state.tables.placement import LowerOffsets, PlaceTopic
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    ForgetRefused,
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.types import STATE_VERSION, State
from samelog.sequencer.state.units.events import TELLERS, events_written, note_events
from samelog.sequencer.state.units.groups import change_groups
from samelog.sequencer.state.units.logs import (
    LOG_CHANGES,
    archive_records,
    void_records,
)
from samelog.sequencer.state.units.members import MEMBER_CHANGES, SITE_CHANGES
from samelog.sequencer.state.units.merges import merge
from samelog.sequencer.state.units.mirrors import MIRROR_CHANGES, follow_source
from samelog.sequencer.state.units.placement import PLACEMENT_CHANGES
from samelog.sequencer.state.units.recovered_offsets import lower_offsets
from samelog.sequencer.state.units.resets import reset
from samelog.sequencer.state.units.schemas import SCHEMA_CHANGES
from samelog.sequencer.state.units.sessions import (
    close_run,
    expire,
    open_input,
    open_placed_input,
    retire_session,
)
from samelog.sequencer.state.units.stages import STAGE_UNITS
from samelog.sequencer.state.units.topics import TOPIC_CHANGES, create_topic, delete_topic
from samelog.sequencer.state.units.transactions import TRANSACTION_COMMANDS, change_transactions
from samelog.sequencer.state.units.views import VIEW_CHANGES

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class StateMachine:
    """Applies commands. `apply` returns the value the proposer waits for, or a Rejection."""

    def __init__(self, state: State | None = None) -> None:
        self.feed_listeners: list[Callable[[], None]] = []
        """Of whoever reads what is told of groups and transactions."""
        self.restore(state if state is not None else State())

    def restore(self, state: State) -> None:
        """Go on with another state, as a snapshot has it."""
        self.state = state
        state.feeds.listeners = self.feed_listeners
        state.reindex()

    @property
    def index(self) -> SessionIndex:
        """Finds inputs and idle sessions."""
        return self.state.sessions.index

    def encode(self) -> bytes:
        """The whole state, for a snapshot."""
        return _encoder.encode(self.state)

    @classmethod
    def decode(cls, data: bytes) -> StateMachine:
        """The state machine of a snapshot. Raises OtherVersion on one this build cannot read."""
        try:
            state = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise OtherVersion(f"unreadable state: {error}") from error
        if state.version != STATE_VERSION:
            raise OtherVersion(f"state version {state.version}, this program reads {STATE_VERSION}")
        state.share_names()
        return cls(state)

    def apply(self, command: AnyCommand) -> Any:
        """Apply one committed command: the value its proposer waits for, or a Rejection."""
        tell = TELLERS.get(type(command))
        happened = () if tell is None else tuple(tell(self.state, command))
        outcome = APPLY[type(command)](self.state, command)
        if happened and not isinstance(outcome, Rejection):
            note_events(self.state, happened)
        return outcome


def _change(state: State, command: AnyCommand) -> AnyCommand | Rejection:
    problem = CHANGES[type(command)](state, command)
    return command if problem is None else Rejection(*problem)


def _note_election(state: State, command: NoteElection) -> None:
    state.events.note_election(command)


def _record_event(state: State, command: RecordEvent) -> WhyNot:
    state.events.remember(command)
    return None


def _forget_refused(state: State, command: ForgetRefused) -> WhyNot:
    state.sessions.forget_refused(command)
    return None


CHANGES: dict[type, Callable[[State, Any], WhyNot]] = {
    **dict.fromkeys(ACCESS_COMMANDS, lambda state, command: state.access.apply(command)),
    RecordEvent: _record_event,
    ForgetRefused: _forget_refused,
    **MEMBER_CHANGES,
    **TOPIC_CHANGES,
    **LOG_CHANGES,
    **SCHEMA_CHANGES,
    **MIRROR_CHANGES,
    **PLACEMENT_CHANGES,
    **SITE_CHANGES,
    **VIEW_CHANGES,
}
"""Commands that are their own answer: each returns why it changed nothing, if it did not."""

APPLY: dict[type, Callable[[State, Any], Any]] = {
    Merge: merge,
    **dict.fromkeys((CreateTopicCommand, PlaceTopic), create_topic),
    DeleteTopicCommand: delete_topic,
    OpenRunCommand: lambda state, command: state.sessions.open_run(command),
    OpenInputCommand: open_input,
    OpenPlacedInput: open_placed_input,
    CloseRun: close_run,
    RetireSessionCommand: retire_session,
    Expire: expire,
    Checkpoint: lambda state, command: state.partitions.agree(command),
    VoidRecordsCommand: void_records,
    ArchiveCommand: archive_records,
    NodeStarted: lambda state, command: state.members.start(command),
    NoteElection: _note_election,
    FollowSource: follow_source,
    EventsWritten: events_written,
    LowerOffsets: lower_offsets,
    **dict.fromkeys((SoftReset, HardReset), reset),
    **dict.fromkeys(GROUP_COMMANDS, change_groups),
    **dict.fromkeys(TRANSACTION_COMMANDS, change_transactions),
    **STAGE_UNITS,
    **dict.fromkeys(CHANGES, _change),
}
"""What applies a command of each type: its table, or the unit that knows all tables it touches."""
