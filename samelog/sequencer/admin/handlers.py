"""Who answers which administrative request.

Any node answers; what changes the cluster goes to the leader by itself, or NotLeader names it.
Whether somebody may ask is checked before, by the table (`samelog.admin.table`). Handlers whose
work grows with what exists are generators, or run one, in slices of the event loop.

Invariant: every request of the table has a handler; success is answered only for what is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from types import GeneratorType
from typing import Any

from samelog.admin import group_requests as of_groups
from samelog.admin import mirror_requests as mirror
from samelog.admin import placement_requests as place
from samelog.admin import requests as ask
from samelog.admin import site_requests as site
from samelog.runtime.slices import paced
from samelog.sequencer.admin import (
    access,
    archiving,
    groups,
    members,
    merge_order,
    placement,
    readers,
    records,
    resets,
    schemas,
    sessions,
    stages,
    status,
    tasks,
    topics,
    transactions,
    upgrades,
    voids,
)
from samelog.sequencer.admin.mirroring import mirrors, sources
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.siting import promoting, sites

AdminHandler = Callable[[ServedNode, Any], Awaitable[object] | object]
"""What it returns is the answer, a coroutine, or `format.steps.StepWork`."""
IdentityHandler = Callable[[ServedNode, Any, str], Awaitable[object] | object]
HANDLERS: Mapping[type[ask.AdminRequest[Any]], AdminHandler] = {
    ask.GetStatus: status.cluster_status,
    ask.GetRaftStatus: status.raft_status,
    ask.GetElections: status.elections,
    ask.GetAccess: access.get_access,
    ask.GetMergeOrder: merge_order.merge_order,
    ask.ResetCluster: resets.reset_cluster,
    ask.DescribeTopic: schemas.describe_topic_or_view,
    ask.CreateTopic: topics.create_topic,
    ask.CreatePartitions: topics.add_partitions,
    ask.AlterTopic: topics.alter_topic,
    ask.DeleteTopic: schemas.delete_topic_or_view,
    ask.GetLatestPositions: topics.latest_positions,
    ask.SetSchema: schemas.set_schema,
    ask.VoidRecords: voids.void_records,
    ask.LogHistory: archiving.log_history,
    ask.PlanArchive: archiving.plan_archive,
    ask.ListSessions: sessions.list_sessions,
    ask.RetireSession: sessions.retire_session,
    ask.ContinueSession: sessions.settle_holds,
    ask.DiscardSession: sessions.settle_holds,
    ask.ListDedupIds: sessions.list_dedup_ids,
    ask.ListSubscribers: readers.list_subscribers,
    ask.ListGroups: groups.list_groups,
    ask.DescribeGroup: groups.describe_group,
    ask.ResetGroup: groups.reset_group,
    ask.ListTransactions: transactions.list_transactions,
    ask.DescribeTransaction: transactions.describe_transaction,
    ask.AbortTransaction: transactions.abort_transaction,
    ask.AddNode: members.add_node,
    ask.RemoveNode: members.remove_node,
    ask.ReadmitNode: members.readmit_node,
    ask.MoveLeadership: members.move_leadership,
    ask.SetMaintenance: members.set_maintenance,
    ask.SetHostMaintenance: members.set_maintenance,
    place.GetPlacement: placement.placement_status,
    place.ListTasks: tasks.list_tasks,
    place.PauseTask: tasks.pause_task,
    place.ResumeTask: tasks.resume_task,
    place.CancelTask: tasks.cancel_task,
    place.DrainNode: tasks.drain_nodes,
    place.DrainHost: tasks.drain_nodes,
    place.BalanceCluster: tasks.balance_cluster,
    place.AlterCluster: tasks.alter_cluster,
    place.RecoverDataGroup: tasks.recover_group,
    site.ListSites: sites.list_sites,
    site.CreateSite: sites.create_site,
    site.DropSite: sites.drop_site,
    site.AlterSite: sites.alter_site,
    site.LetSiteLead: sites.let_site_lead,
    site.GetStanding: promoting.standing,
    site.PromoteSite: promoting.promote_site,
    ask.GetUpgrade: upgrades.upgrade_status,
    ask.FinalizeUpgrade: upgrades.finalize_upgrade,
}
IDENTITY_HANDLERS: Mapping[type[ask.AdminRequest[Any]], IdentityHandler] = {
    ask.ListSchemas: schemas.list_schemas,
    ask.ListTopics: topics.list_topics,
    ask.CreateView: schemas.create_view,
    ask.GetIdentity: access.whoami,
    ask.PeekRecords: records.peek_records,
    ask.TruncatePartition: topics.truncate_partition,
    of_groups.BeatGroup: groups.beat_group,
    of_groups.NotePositions: groups.note_positions,
    of_groups.GetProcessedOffset: groups.processed_offset,
    ask.HoldStage: stages.hold_stage,
    ask.PublishStage: stages.publish_stage,
    ask.DropStage: stages.drop_stage,
    mirror.GetSource: sources.source_state,
    mirror.ListMirrors: mirrors.list_mirrors,
    mirror.PutMirror: mirrors.put_mirror,
    mirror.LeaveGap: mirrors.leave_gap,
    mirror.CopySchema: mirrors.copy_schema,
    mirror.FollowMirrored: mirrors.follow_mirrored,
    mirror.PromoteTopics: mirrors.promote_topics,
}
"""Those that depend on who asks: what it may read, and what it owns."""


async def answer(node: ServedNode, request: ask.AdminRequest[Any], identity: str) -> object:
    """What is asked by `identity`. Raises ChangeRefused, NotLeader, InvalidName, TimeoutError."""
    kind = type(request)
    if kind in IDENTITY_HANDLERS:
        found = IDENTITY_HANDLERS[kind](node, request, identity)
    else:
        found = HANDLERS[kind](node, request)
    if isinstance(found, GeneratorType):
        return await paced(found)
    return await found if isawaitable(found) else found
