"""Answers administrators about the promotion of a site: what a node would go on with, and whether
it does.

Invariant: a node is promoted only while it hears no leader and reaches no voter outside its site,
with the newest entry of its site, and with every other member of the site that is not given up by
name, each of which has agreed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import suppress

from samelog.admin.site_answers import PartitionStanding, PromotionBegun, Standing
from samelog.admin.site_requests import GetStanding, PromoteSite
from samelog.format.steps import StepWork, mapped
from samelog.placement.cluster_ids import promoted_id
from samelog.runtime.slices import paced
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.promotion import PromotionOrder, PromotionOrdered
from samelog.sequencer.parts import LogParts
from samelog.wire.errors import FaultCode
from samelog.wire.peer_messages import PromotionAsked, PromotionTold

HEARD_S = 10.0
"""A leader that was heard of so lately lives."""
SURELY_DOWN_S = 600.0
"""One that was silent for so long is down, unless the line is; an operator may know it earlier."""
AGREED_S = 5.0
"""So long the others of the site may take to agree."""
ANSWERED_S = 0.5
"""Delay between the answer and the restart of the node, in seconds."""


def standing(node: ServedNode, _request: GetStanding) -> StepWork[Standing]:
    """As it is now."""
    partitions = yield from mapped(lambda each: each, _partitions(node))
    state, raft = node.logs.machine.state, node.raft.group.raft
    number, name = node.peers.number, node.peers.members.name
    sites, up = state.placement.sites, node.peers.presence.up
    mates = _mates(node)
    last = raft.last_index
    there = {number, *mates}
    return Standing(
        name(number),
        sites.members.get(number, ""),
        state.members.cluster_id,
        node.raft.group.is_leader,
        raft.leader_silent_s(node.member.clock.now()),
        last,
        raft.log.term_at(last) or 0,
        raft.commit_index,
        tuple(name(each) for each in up if each != number),
        tuple(map(name, mates)),
        tuple(each.name for each in state.members.by_number.values() if each.voter),
        tuple(partitions),
        tuple(n for n, each in state.placement.groups.items() if there.isdisjoint(each.everybody)),
    )


def _mates(node: ServedNode) -> list[int]:
    """The other members of its site."""
    sites, own = node.logs.machine.state.placement.sites, node.peers.number
    site = sites.members.get(own)
    return sorted(n for n, other in sites.members.items() if other == site and n != own)


def _partitions(node: ServedNode) -> Iterator[PartitionStanding]:
    """Of group 0, and of the data groups that have a replica here."""
    yield from _partitions_of(node.logs)
    for _, logs, _ in node.data_groups.here:
        yield from _partitions_of(logs)


def _partitions_of(logs: LogParts) -> Iterator[PartitionStanding]:
    state, merging = logs.machine.state, logs.merging
    for number, partition in tuple(state.partitions.by_number.items()):
        if not state.has_here(number) or partition.topic_id not in state.topics.by_id:
            continue  # it is in another group, or gone meanwhile
        here = merging.partitions.get(number)
        end = 0 if here is None else here.log.next_offset
        topic = state.topics.by_id[partition.topic_id].name
        yield PartitionStanding(topic, partition.index, end, partition.next_offset)


async def promote_site(node: ServedNode, request: PromoteSite) -> PromotionBegun:
    """Raises ChangeRefused, and then nothing is done."""
    now = await paced(standing(node, GetStanding()))
    _check_node(node, now)
    check_promotion(now, request)
    # The id of a life is random, and a promotion ends it.
    promotion = node.member.directory.record.incarnation
    others = tuple(each for each in now.mates if each not in request.without)
    await _agreed(node, PromotionAsked(promotion, now.term, now.entry), others)
    order = PromotionOrder(site=request.site, promotion=promotion, others=others)
    asyncio.get_running_loop().call_later(ANSWERED_S, node.fail, PromotionOrdered(order))
    return PromotionBegun(now.node, promoted_id(now.cluster_id, promotion))


async def _agreed(node: ServedNode, asked: PromotionAsked, others: Collection[str]) -> None:
    """Have the others of the site agree. Raises ChangeRefused."""
    agreement, name = node.peers.whereabouts.agreement, node.peers.members.name
    if not agreement.promise(node.peers.number, node.member.clock.now()):
        text = "another member of this site was asked a moment ago"
        raise ChangeRefused(FaultCode.CHANGE_PENDING, text, "samelog site list")
    asking = [each for each in _mates(node) if name(each) in others]
    told = asyncio.Event()
    agreement.ask(asked.promotion, asking, told.set)
    for each in asking:
        node.peers.links.send(each, asked)
    with suppress(TimeoutError):
        async with asyncio.timeout(AGREED_S):
            while not agreement.is_over:
                await told.wait()
                told.clear()
    if agreement.refused or agreement.silent:
        silent = ", ".join(map(name, agreement.silent))
        text = agreement.refused or f"{silent} of the same site did not answer"
        raise ChangeRefused(FaultCode.CHANGE_PENDING, text, "try again, or --without NODE")


def agree(node: ServedNode, sender: int, asked: PromotionAsked) -> PromotionTold:
    """Whether this member agrees that another one of its site is promoted, and to nobody else for a
    while.
    """
    return PromotionTold(asked.promotion, _why_not(node, sender, asked))


def _why_not(node: ServedNode, sender: int, asked: PromotionAsked) -> str:
    raft, own = node.raft.group.raft, node.peers.members.name(node.peers.number)
    if sender not in _mates(node):
        return f"{own} is in another site"
    silent_s = raft.leader_silent_s(node.member.clock.now())
    if node.raft.group.is_leader or silent_s < HEARD_S / 2:
        return f"{own} hears a leader: the cluster lives"
    if (raft.log.term_at(raft.last_index) or 0, raft.last_index) > (asked.term, asked.entry):
        return f"{own} has more: promote that one"
    if not node.peers.whereabouts.agreement.promise(sender, node.member.clock.now()):
        return f"{own} has agreed to another promotion"
    return ""


def _check_node(node: ServedNode, now: Standing) -> None:
    if halted := node.raft.group.halted:
        text = f"the replica of {now.node} is halted: {halted}"
        raise ChangeRefused(FaultCode.NOT_READY, text, "docs/operations.md, SamelogReplicaHalted")


def check_promotion(now: Standing, request: PromoteSite) -> None:
    """Raises ChangeRefused if a node is not to be promoted as it stands."""
    if now.site != request.site:
        text = f"{now.node} is not in site {request.site!r}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "samelog site list")
    if (now.term, now.entry) < (request.term, request.entry):
        text = f"{now.node} has entry {now.entry} of term {now.term}, another one has more"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "promote with the newest")
    _check_silence(now, request)
    _check_mates(now, request)


def _check_silence(now: Standing, request: PromoteSite) -> None:
    if now.leads or now.silent_s < HEARD_S:
        text = f"{now.node} hears a leader: the cluster lives"
        raise ChangeRefused(FaultCode.CHANGE_PENDING, text, "samelog site list")
    others = set(now.voters) - {now.node, *now.mates}
    if reached := sorted(others & set(now.reached)):
        text = f"{', '.join(reached)} can be reached, and may have more"
        remedy = "stop it, or let it go on: samelog recover majority-lost"
        raise ChangeRefused(FaultCode.CHANGE_PENDING, text, remedy)
    if now.silent_s < SURELY_DOWN_S and not request.others_are_down:
        text = f"a leader was heard of {now.silent_s:.0f} s ago: perhaps only the line is cut"
        remedy = "if the others are surely down: --first-site-is-down"
        raise ChangeRefused(FaultCode.CHANGE_PENDING, text, remedy)


def _check_mates(now: Standing, request: PromoteSite) -> None:
    away = sorted(set(now.mates) - set(now.reached) - set(request.without))
    if away:
        text = f"{', '.join(away)} of the same site cannot be reached, and may have more"
        remedy = "start it; or give it up: --without NODE"
        raise ChangeRefused(FaultCode.NOT_READY, text, remedy)
