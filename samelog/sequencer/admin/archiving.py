"""Answers administrators about archiving. Invariant: asking changes nothing."""

from __future__ import annotations

from msgspec import UNSET

from samelog.admin.answers import ArchivePlan, CopyProgress, LogHistoryPage, PlannedArchive
from samelog.admin.requests import LogHistory, PlanArchive
from samelog.archiver.log_history import HistoryRefused
from samelog.archiver.plan import ArchiveProposal
from samelog.consensus import NotLeader
from samelog.format.steps import StepWork
from samelog.sequencer.admin.parts import ServedNode, elsewhere
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.parts import CareParts

TEXT_CHARACTERS = 1000


def log_history(node: ServedNode, request: LogHistory) -> StepWork[LogHistoryPage]:
    """One page: of one partition by who has it; else of those in group 0. A view has no files.
    Raises KeptElsewhere, ChangeRefused.
    """
    if request.topic is not UNSET and node.logs.machine.state.views.named(request.topic):
        return LogHistoryPage((), more=False)
    try:
        return (yield from _care_of(node, request).archive.log_history.page(request))
    except HistoryRefused as error:
        raise ChangeRefused(error.code, str(error), error.remedy) from error


def _care_of(node: ServedNode, request: LogHistory) -> CareParts:
    """Raises KeptElsewhere or ChangeRefused if other nodes have what is asked for."""
    state = node.logs.machine.state
    if (
        request.topic is UNSET
        or request.partition is UNSET
        or request.topic not in state.topics.by_name
    ):
        return node.care
    topic = state.topics.by_id[state.topics.by_name[request.topic]]
    if not topic.is_placed or not 0 <= request.partition < topic.partitions:
        return node.care
    number = topic.partition_numbers[request.partition]
    care = node.data_groups.care_of(number)
    if care is None:
        raise elsewhere(node, number)
    return care


def plan_archive(node: ServedNode, request: PlanArchive) -> ArchivePlan:
    """What the next round would do: in group 0, if this node leads it; or in the data groups that
    it leads. Raises NotLeader.
    """
    if request.data_groups:
        return _plan_of_groups(node)
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    archive, merging = node.care.archive, node.logs.merging
    found = archive.rounds.plan()
    return ArchivePlan(
        archive.policy.text,
        archive.policy.problem[:TEXT_CHARACTERS],
        tuple(_planned(merging, each) for each in found.proposals),
        tuple(found.held),
        archive.copies.state(),
        tuple(archive.disagreements()),
        len(node.logs.machine.state.placement.groups),
    )


def _plan_of_groups(node: ServedNode) -> ArchivePlan:
    planned, held, copies = list[PlannedArchive](), list[str](), list[CopyProgress]()
    for logs, raft, care in node.data_groups.held:
        if raft.group.is_leader:
            found = care.archive.rounds.plan()
            planned += (_planned(logs.merging, each) for each in found.proposals)
            held += found.held
            copies.append(care.archive.copies.state())
    policy = node.care.archive.policy
    shown = max(copies, key=_urgency, default=CopyProgress())
    return ArchivePlan(policy.text, "", tuple(planned), tuple(held), shown)


def _urgency(copies: CopyProgress) -> tuple[bool, bool]:
    """One of several is shown: what fails before what is under way."""
    return bool(copies.problem), bool(copies.file)


def _planned(merging: Merging, each: ArchiveProposal) -> PlannedArchive:
    merged = merging.partitions[each.partition]
    ends = each.first, each.segment
    return PlannedArchive(merged.topic, merged.index, *ends, each.files, each.size, each.reason)
