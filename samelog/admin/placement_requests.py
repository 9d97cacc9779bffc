"""What can be asked of a node about placement: which group is where, and the tasks that change it.

Invariant: as in `samelog.admin.requests`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from samelog.admin.answers import ClusterSettings, PlacementStatus
from samelog.admin.requests import AdminRequest, ConfirmedRequest, NodeHost, NodeName
from samelog.admin.task_answers import Drained, TaskRows

TaskNumber = Annotated[int, Meta(ge=1, le=(1 << 32) - 1, description="Of a task.")]

GroupNumber = Annotated[int, Meta(ge=1, le=(1 << 32) - 1, description="Of a data group.")]


class GetPlacement(AdminRequest[PlacementStatus], frozen=True):
    """Which groups there are, and which partition is where."""


class ListTasks(AdminRequest[TaskRows], frozen=True):
    """Tasks of placement."""


class PauseTask(AdminRequest[TaskRows], frozen=True):
    """Let a task stand still; without a number, begin none."""

    task: TaskNumber | UnsetType = UNSET


class ResumeTask(AdminRequest[TaskRows], frozen=True):
    """Let a paused task go on; without a number, begin tasks again, also what was cancelled."""

    task: TaskNumber | UnsetType = UNSET


class CancelTask(AdminRequest[TaskRows], frozen=True):
    """Undo a task, or let it end where that is too late."""

    task: TaskNumber


class DrainNode(AdminRequest[Drained], frozen=True):
    """Move all replicas of data groups away from a node; or let it have some again."""

    node: NodeName
    ends: bool = False


class DrainHost(AdminRequest[Drained], frozen=True):
    """Move all replicas of data groups away from a host; or let its nodes have some again."""

    host: NodeHost
    ends: bool = False


class BalanceCluster(AdminRequest[TaskRows], frozen=True):
    """Even out replicas and leaders of data groups, also what was cancelled before."""


class AlterCluster(AdminRequest[ClusterSettings], frozen=True):
    """Change settings of the cluster."""

    default_replication_factor: Annotated[
        int,
        Meta(ge=0, le=7, description="Copies of topics created without a number; 0: as shipped."),
    ]


class RecoverDataGroup(ConfirmedRequest[TaskRows], frozen=True):
    """Let a data group whose majority is lost for ever go on with the replica of one node.
    `suspect`: nodes that say that their replica counts for nothing, as it may have forgotten
    something: they are no part of a majority.
    """

    CONFIRMS = "group"
    group: GroupNumber
    node: NodeName
    suspect: Annotated[tuple[NodeName, ...], Meta(max_length=7)] = ()
