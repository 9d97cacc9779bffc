"""Tasks: what changes placement, one step after another, whoever leads meanwhile.

A task that runs is replicated state of group 0, so it is carried on or undone after any crash. What
it does next follows from what the group says of itself, never from what was asked for before.

Invariant: a task occupies its groups; no other one has any of them until it ended.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from samelog.format.numbers import Count63, Unsigned32


class TaskKind(IntEnum):
    """Why a task is there. The numbers are the format."""

    REPLACE = 1
    FILL = 2
    ASSIGN = 3
    DRAIN = 4
    MOVE_PARTITION = 5
    LEAD = 6
    SURPLUS = 7
    SPREAD = 8
    BALANCE = 9
    READ = 10
    SPLIT = 11


class TaskState(IntEnum):
    """What an operator, or its end, made of a task. The numbers are the format."""

    RUNNING = 1
    PAUSED = 2
    CANCELLING = 3
    DONE = 4
    CANCELLED = 5


class PlacementTask(msgspec.Struct, frozen=True, array_like=True):
    """One change of one group: a member gets a replica (`gets`, under the number `replica`), a
    member loses its own (`loses`), or a member shall lead (`gets` alone, LEAD).

    READ is about replicas that only read: they never vote. MOVE_PARTITION moves `partition` from
    `group` to `target`, as somebody asked for; SPLIT does, to even groups out.
    """

    number: Unsigned32
    kind: TaskKind
    group: Unsigned32
    gets: Unsigned32 | None = None
    loses: Unsigned32 | None = None
    replica: Unsigned32 | None = None
    partition: Unsigned32 | None = None
    target: Unsigned32 | None = None
    state: TaskState = TaskState.RUNNING
    began_ms: int = 0
    reason: str = ""

    @property
    def groups(self) -> tuple[int, ...]:
        """The groups that it occupies."""
        return (self.group,) if self.target is None else (self.group, self.target)

    @property
    def goes(self) -> int | None:
        """The member that is to lose its replica by it, as it is now."""
        if self.kind is TaskKind.LEAD or self.target is not None:
            return None
        return self.gets if self.state is TaskState.CANCELLING else self.loses

    @property
    def is_over(self) -> bool:
        """Whether nothing will come of it any more."""
        return self.state in (TaskState.DONE, TaskState.CANCELLED)

    @property
    def takes_room(self) -> bool:
        """Whether it counts among those that run on a member, as one does that is paused: it has a
        replica there. Who leads costs nobody anything.
        """
        return self.kind is not TaskKind.LEAD


class Action(IntEnum):
    """What the leader of a data group is asked to do. The numbers are the format."""

    ADD_LEARNER = 1
    PROMOTE = 2
    REMOVE = 3
    LEAD = 4
    COPY_PARTITION = 5
    SEAL_PARTITION = 6
    OPEN_PARTITION = 7
    DROP_PARTITION = 8
    FORBID_SEAL = 9
    HOLD_PARTITION = 10


class GroupOrder(msgspec.Struct, frozen=True, array_like=True):
    """What a group's leader is asked to do for a task. It is repeated until the group says that it
    is so, and done only while the group's configuration has this `version`.

    `copies`: fewer whole ones than this must never be left by a removal.
    """

    task: Unsigned32
    action: Action
    group: Unsigned32
    version: Count63
    member: Unsigned32 | None = None
    replica: Unsigned32 | None = None
    partition: Unsigned32 | None = None
    copies: Unsigned32 = 0


class PartitionMove(msgspec.Struct, frozen=True, array_like=True):
    """How far the move of a partition is, as both groups say: the source does not compact it; every
    replica of the target has its log; it is sealed; it is open there; no replica of the source has
    files of it any more.

    `has_files`: the target may have files of it. `is_forbidden`: the source will never seal it for
    this task. `is_overdue`: it is not sealed, and the source has waited with a compaction of it for
    as long as it may.
    """

    is_held: bool = False
    is_copied: bool = False
    is_sealed: bool = False
    is_open: bool = False
    is_dropped: bool = False
    has_files: bool = False
    is_forbidden: bool = False
    is_overdue: bool = False


class PlacementRefused(Exception):
    """A change that cannot be: a stable code, what is in the way, and what to do."""

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.remedy = code, message, remedy
