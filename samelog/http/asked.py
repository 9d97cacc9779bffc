"""What requests say: the fields of paths, queries and bodies, with their bounds and meanings.

Invariant: a value that passes is within the bounds of the message that it becomes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from samelog.http.routes import Asked

MAX_31 = (1 << 31) - 1
MAX_63 = (1 << 63) - 1
TopicName = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,249}$", max_length=249, description="A topic's name.")
]
SessionName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", max_length=128, description="A session.")
]
NodeName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", description="A node.")]
GroupName = Annotated[str, Meta(min_length=1, max_length=255, description="A consumer group.")]
PartitionNumber = Annotated[int, Meta(ge=0, le=MAX_31, description="A partition.")]
Offset = Annotated[int, Meta(ge=0, le=MAX_63)]


class Nothing(Asked, frozen=True):
    """Nothing."""


class OneTopic(Asked, frozen=True):
    """A topic."""

    topic: TopicName


class OneGroup(Asked, frozen=True):
    """A consumer group."""

    group: GroupName


class OfTopic(Asked, frozen=True):
    """All topics, or one."""

    topic: TopicName | UnsetType = UNSET


class HistoryFrom(Asked, frozen=True):
    """Files of merged logs: of one topic, of one partition; from a place on."""

    topic: TopicName | UnsetType = UNSET
    partition: PartitionNumber | UnsetType = UNSET
    from_topic: TopicName | UnsetType = UNSET
    from_partition: PartitionNumber = 0
    from_offset: Annotated[
        Offset, Meta(description="Of an answer with `more`: the last file's `next_offset`.")
    ] = 0


class Reset(Asked, frozen=True):
    """Begin Raft's log, or (hard) the logs of all topics, anew."""

    hard: Annotated[bool, Meta(description="The logs of all topics too: docs/resets.md.")]
    reset_id: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9A-Za-z-]{1,64}$",
                description="One that is asked for twice is done once; without it, a new one.",
            ),
        ]
        | UnsetType
    ) = UNSET


class Maintenance(Asked, frozen=True):
    """Work on a node."""

    node: NodeName
    seconds: Annotated[int, Meta(ge=0, le=10 * 365 * 86_400, description="From now on; 0: over.")]


class Leadership(Asked, frozen=True):
    """Who is to lead."""

    to: NodeName | UnsetType = UNSET
    """Whoever is best, if it is not said."""


class OneSession(Asked, frozen=True):
    """A session."""

    session: SessionName


class GroupReset(Asked, frozen=True):
    """Where a group without members is to go on."""

    group: GroupName
    topic: TopicName
    to: Literal["earliest", "latest", "offset", "time", "shift"]
    partition: PartitionNumber | UnsetType = UNSET
    offset: (
        Annotated[
            int,
            Meta(
                ge=-MAX_63,
                le=MAX_63,
                description="To an offset, a time in ms, or a distance; for those `to` only.",
            ),
        ]
        | UnsetType
    ) = UNSET
