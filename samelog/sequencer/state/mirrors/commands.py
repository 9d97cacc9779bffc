"""The commands about mirrors: topics of another cluster, read-only here (docs/mirror.md).

The instruction that appends to one is a `Merge` whose `extras` say what is mirrored.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.group_commands import CommittedOffset


class MirrorSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a mirror is of: a log of a topic of a cluster. `origins` are the ids of all clusters
    that its records were in before, the source last. `keeps_epochs`: the leader epochs in its
    batches mean something here (samelog's do, Kafka's do not).
    """

    cluster_id: str
    topic: str
    log_id: str
    origins: list[str]
    keeps_epochs: bool


class CreateMirror(Command, frozen=True, tag=125):
    """Bind a new topic id to a name that no living topic has: as a mirror."""

    topic_id: str
    name: str
    partitions: Unsigned32
    settings: dict[str, str]
    at_ms: int
    source: MirrorSource


class MirrorGap(Command, frozen=True, tag=126):
    """The source has nothing from `base_offset`, where the mirror ends, up to `next_offset`. An
    empty mirror begins there (perhaps where it ends, too), with `checksum` as running checksum
    (None: not known), and readers begin at `log_start`. Of any other one these offsets become void;
    `text` says why.
    """

    partition: Unsigned32
    base_offset: int
    next_offset: int
    log_start: int
    checksum: int | None
    at_ms: int
    text: str


class PromoteMirrors(Command, frozen=True, tag=128):
    """These topics are mirrors no more, all at once: whoever may publish to them may from now on.
    Transactions that are open in them are aborted.
    """

    topic_ids: list[str]
    at_ms: int
    by: str


class FollowSource(Command, frozen=True, tag=129):
    """What the source knows of its topics beside the bytes: positions of consumer groups, and from
    which offsets on (in each partition) versions of the schema are in force.
    """

    positions: list[tuple[str, list[tuple[Unsigned32, CommittedOffset]]]]
    since: list[tuple[Unsigned32, list[tuple[int, int]]]]


MirrorCommand = CreateMirror | MirrorGap | PromoteMirrors | FollowSource
