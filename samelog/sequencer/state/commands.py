"""The union of all commands that Raft orders, and their encoding.

An entry's payload is a MessagePack list of commands, so that one round of consensus carries as many
as are ready. Each command is defined with the table that it changes first (`tables/`), or with the
instructions.

Invariant: decoding what `encode_commands` wrote gives equal commands; field order is the format.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.compaction import CompactionCommand
from samelog.consensus import MalformedMessage, decode_configuration, is_configuration
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.instructions import Merge, VoidRecordsCommand
from samelog.sequencer.state.tables.access import AccessCommand
from samelog.sequencer.state.tables.events import EventCommand
from samelog.sequencer.state.tables.groups import GroupCommand
from samelog.sequencer.state.tables.keys import TellKeys
from samelog.sequencer.state.tables.members import (
    MemberCommand,
)
from samelog.sequencer.state.tables.mirrors import MirrorCommand
from samelog.sequencer.state.tables.partitions import Checkpoint
from samelog.sequencer.state.tables.placement import PlacementCommand
from samelog.sequencer.state.tables.resets import ResetCommand
from samelog.sequencer.state.tables.schemas import SchemaCommand
from samelog.sequencer.state.tables.sessions import (
    SessionCommand,
)
from samelog.sequencer.state.tables.sites import SiteCommand
from samelog.sequencer.state.tables.stages import (
    StageCommand,
)
from samelog.sequencer.state.tables.topics import (
    TopicCommand,
)
from samelog.sequencer.state.tables.transactions import TransactionCommand
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.tables.views import ViewCommand


class CommandError(OtherVersion):
    """A Raft entry's payload that no version of samelog known here has written."""


AnyCommand = (
    Merge
    | VoidRecordsCommand
    | ArchiveCommand
    | CompactionCommand
    | AccessCommand
    | Checkpoint
    | EventCommand
    | GroupCommand
    | MemberCommand
    | MirrorCommand
    | PassPartition
    | PlacementCommand
    | ResetCommand
    | SchemaCommand
    | SessionCommand
    | SiteCommand
    | StageCommand
    | TellKeys
    | TopicCommand
    | TransactionCommand
    | ViewCommand
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyCommand])


def encode_commands(commands: Sequence[AnyCommand]) -> bytes:
    """The payload of one Raft entry."""
    return _encoder.encode(list(commands))


def decode_commands(data: bytes) -> list[AnyCommand]:
    """The commands of one Raft entry, a configuration's share included. Raises CommandError."""
    if not data:
        return []
    try:
        if is_configuration(data):
            return decode_commands(decode_configuration(data).context)
        return _decoder.decode(data)
    except (MalformedMessage, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CommandError(f"unreadable Raft entry: {error}") from error
