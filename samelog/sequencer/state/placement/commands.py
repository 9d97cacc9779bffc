"""Commands about data groups, and those that a data group has of its own (docs/groups.md).

Invariant: applying a command of a data group needs nothing of group 0; field order is the format.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.placement.values import PlacedReplica
from samelog.sequencer.levels import GROUPS
from samelog.sequencer.state.command_base import Command


class NewGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group to be made, on these members; `preferred` shall lead it."""

    copies: Unsigned32
    members: list[Unsigned32]
    preferred: Unsigned32
    is_pinned: bool = False


class MakeGroups(Command, frozen=True, tag=70):
    """In group 0: make data groups, with the next numbers. `since`: the version of the table that
    they were planned from.
    """

    needs: ClassVar[int] = GROUPS
    since: int
    groups: list[NewGroup]


class SetReplicas(Command, frozen=True, tag=76):
    """In a data group, always its share of a configuration entry of Raft: these are its replicas.
    `level` is the cluster's feature level, `task` asked for it (empty: the group begins), `version`
    is that of the configuration before it.
    """

    needs: ClassVar[int] = GROUPS
    group: Unsigned32
    level: Unsigned32
    version: int
    task: str
    replicas: list[PlacedReplica]


PlacementCommand = MakeGroups | SetReplicas
