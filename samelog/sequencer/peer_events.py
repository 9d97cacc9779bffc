"""What the other members say on their connections, handed to the part of this node it concerns.

Invariant: a peer is given a report only in a life that nothing known here contradicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, get_args

from samelog.consensus import GroupMessages
from samelog.placement.cluster_ids import ends
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.sessions import pass_decision
from samelog.sequencer.admin.siting.promoting import agree
from samelog.sequencer.admin.status import own_state
from samelog.sequencer.admin.topic_users import readers_here
from samelog.sequencer.cluster.lives import Contradiction, KnownLife
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.cluster.peers import PeerServer
from samelog.sequencer.cluster.promotion import SiteWasPromoted
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.stages import Stages
from samelog.sequencer.group_replica import GroupReplica
from samelog.wire.bounds import METADATA_GROUP, Life
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.peer_messages import (
    READERS_MOST,
    Beat,
    BeatAnswer,
    Forgotten,
    GroupOrders,
    HoldsDecision,
    HoldsTold,
    InGroup,
    KeysAsked,
    KeysTold,
    LacksLibraries,
    Leads,
    LogsHeld,
    MemberList,
    MemberState,
    NotQuiet,
    PartOfRunClosed,
    PassAsked,
    PassReport,
    PassTold,
    PeerMessage,
    PromotionAsked,
    PromotionTold,
    ReadersAsked,
    ReadersTold,
    RunAsked,
    RunHeld,
    SiteLag,
    Superseded,
)

OfDataGroups = (
    InGroup
    | PartOfRunClosed
    | Leads
    | GroupOrders
    | PassAsked
    | PassTold
    | PassReport
    | KeysAsked
    | KeysTold
    | RunAsked
    | RunHeld
    | Beat
    | BeatAnswer
    | NotQuiet
)
OF_DATA_GROUPS = get_args(OfDataGroups)
OfPresence = MemberState | LacksLibraries | LogsHeld | HoldsTold
OF_PRESENCE = get_args(OfPresence)


class PeerOwner(ServedNode, Protocol):
    """The node that the peers talk to."""

    @property
    def group_replica(self) -> GroupReplica:
        """Its replica of the group."""

    @property
    def data_groups(self) -> DataGroups:
        """Its replicas of data groups."""

    @property
    def stages(self) -> Stages:
        """What writers stage."""

    @property
    def life(self) -> OwnLife:
        """Its own life."""

    def members_changed(self) -> None:
        """The member list moved."""

    def pass_reported(self, message: PassReport) -> None:
        """How far a group is with a partition that moves."""

    def part_closed(self, message: PartOfRunClosed) -> None:
        """A data group has closed its part of a run."""


OF_TASKS = GroupOrders, PassAsked, PassTold, PassReport


class PeerEvents:
    """One node's ear. Implements dispatch.Introduction."""

    def __init__(self, node: PeerOwner) -> None:
        self._node = node

    def on_raft(self, node: int, parts: Sequence[GroupMessages]) -> None:
        """See peers.PeerListener. A replica that is not here hears nothing."""
        for part in parts:
            if part[:3] == (METADATA_GROUP, 0, 0):
                self._node.raft.group.receive(node, part.messages)
            elif part.group != METADATA_GROUP:
                self._node.data_groups.on_raft(node, part)

    def on_peer_message(self, node: int, message: PeerMessage) -> None:
        """See peers.PeerListener."""
        peers = self._node.peers
        if isinstance(message, OF_PRESENCE):
            self._of_presence(node, message)
        elif isinstance(message, SiteLag):
            peers.whereabouts.lags.say(node, message, self._node.member.clock.now())
        elif isinstance(message, PromotionAsked | PromotionTold):
            self._of_promotion(node, message)
        elif isinstance(message, ReadersAsked | ReadersTold):
            self._of_readers(node, message)
        elif isinstance(message, HoldsDecision):
            pass_decision(self._node, message)
        elif isinstance(message, OF_DATA_GROUPS):
            self._of_data_groups(node, message)
        elif not isinstance(message, MemberList):
            self._node.group_replica.receive(node, message)
        elif peers.members.hear(message):
            self._node.members_changed()

    def _of_presence(self, node: int, message: OfPresence) -> None:
        """Note what another member says of itself."""
        presence = self._node.peers.presence
        match message:
            case MemberState():
                presence.say(node, message, self._node.member.clock.now())
            case LacksLibraries():
                presence.lacks[node] = message.names
            case LogsHeld():
                presence.log_bytes[node] = message.size
            case HoldsTold():
                presence.told_holds(node, message.session, message.parts)

    def _of_promotion(self, node: int, message: PromotionAsked | PromotionTold) -> None:
        """Answer whether this node agrees to a promotion, or note the answer of another one."""
        peers = self._node.peers
        if isinstance(message, PromotionTold):
            peers.whereabouts.agreement.told(node, message.promotion, message.refused)
        else:
            peers.links.send(node, agree(self._node, node, message))

    def _of_readers(self, node: int, message: ReadersAsked | ReadersTold) -> None:
        """Answer with this node's readers of a topic, or note the readers at another node."""
        peers = self._node.peers
        if isinstance(message, ReadersTold):
            peers.surveys.told(node, message.question, message.readers)
        else:
            readers = readers_here(self._node, message.topic)[:READERS_MOST]
            peers.links.send(node, ReadersTold(message.question, readers))

    def _of_data_groups(self, node: int, message: OfDataGroups) -> None:
        groups = self._node.data_groups
        match message:
            case InGroup() | KeysAsked() | KeysTold():
                groups.on_message(node, message)
            case PartOfRunClosed():
                self._node.part_closed(message)
            case Leads():
                groups.hear_leads(node, message)
            case GroupOrders():
                groups.carry_out(node, message.orders)
            case PassAsked():
                groups.passes.answer(node, message)
            case PassTold():
                groups.passes.hear(message)
            case PassReport():
                self._node.pass_reported(message)
            case RunAsked() | RunHeld():
                self._node.stages.hear(node, message)
            case _:
                groups.quiet.hear(node, message)

    def on_peer_welcomes(self, node: int, life: Life) -> None:
        """Send a newly connected peer the member list and a whole report."""
        peers = self._node.peers
        found = peers.lives.contradiction(node, life)
        if found is not None and found.is_own:
            self.forgot(found)
        if found is not None:
            raise ProtocolFault(FaultCode.STALE_BOOT, found.reason)
        peers.links.send(node, peers.members.told())
        peers.links.send(node, own_state(self._node))
        peers.hold_reports.welcomed(node, self._node.member.connections.holding)
        self._node.group_replica.reporter.tell_everything(node)
        self._node.data_groups.welcomed(node)

    def on_forgotten(self, node: int, message: Forgotten) -> None:
        """See peers.PeerListener."""
        known = KnownLife(message.boot, message.incarnation)
        reason = f"{self._node.peers.members.name(node)} says: {message.reason}"
        self.forgot(Contradiction(reason, known, is_own=True))

    def on_superseded(self, message: Superseded) -> None:
        """See peers.PeerListener."""
        if ends(message.cluster_id, self._node.life.cluster_id):
            self._node.life.is_over()
            self._node.data_groups.is_suspect()
            self._node.fail(SiteWasPromoted(message.cluster_id, stays=message.stays))

    def forgot(self, found: Contradiction) -> None:
        """This node has forgotten something."""
        error = self._node.life.forgot(found)
        self._node.data_groups.is_suspect()
        if error is not None:
            self._node.fail(error)

    def on_peer_dialled(self, server: PeerServer) -> None:
        """See peers.PeerListener."""
        self._node.peers.callers.add(server)
        self._node.peers.presence.dialled(server.number)
        self._node.peers.links.is_there(server.number)

    def peer_introduced(self, node: int, *, is_new: bool) -> None:
        """A peer dials in: in another life, what it acknowledged before counts no more."""
        if is_new:
            self._node.raft.group.raft.peer_restarted(node)
            self._node.data_groups.began_anew(node)

    def on_peer_gone(self, server: PeerServer) -> None:
        """A connection that a peer dialled broke. The peer is gone if it was the last one."""
        self._node.peers.callers.remove(server)
        if self._node.peers.presence.broke(server.number, self._node.member.clock.now()):
            self._node.group_replica.peer_gone(server.number)
            self._node.data_groups.gone(server.number)
