"""What a peer was not told is repeated until it was: whatever is dropped, and however connections
come and go, it knows in the end what this node knows; and nothing is said twice without cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from samelog.format.positions import SessionPosition
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.raft.views import NodeView
from samelog.wire.peer_messages import Cursors, PeerMessage, Report

NODE, PEERS = 0, (1, 2)
NUMBERS = (0, 1, 2)
RUN_0 = SessionPosition(0, 0, 0)


class Peer:
    """What one peer has heard on its newest connection."""

    def __init__(self) -> None:
        self.connected = self.writable = True
        self.messages = 0
        self.forget()

    def forget(self) -> None:
        """Restart it."""
        self.places: dict[int, SessionPosition] = {}
        self.merged: dict[int, int] = {}
        self.cursors: dict[int, int] = {}

    def hear(self, message: PeerMessage) -> None:
        self.messages += 1
        match message:
            case Report():
                for number, *place in message.positions:
                    self.places[number] = SessionPosition(*place)
                self.merged.update(dict(message.merged))
            case Cursors():
                self.cursors.update(dict(message.merged))


class World:
    """A reporter, the peers that it reports to, and the little it knows of its node. Implements
    peers.PeerSender.
    """

    def __init__(self) -> None:
        self.peers = {number: Peer() for number in PEERS}
        self.now = 0.0
        self.direct: dict[int, object] = {}
        raft: Any = SimpleNamespace(leader=NODE)
        self.raft = raft
        self.durable = dict.fromkeys(NUMBERS, 0)
        self.cursors: dict[int, int] = {}
        self.views: defaultdict[int, NodeView] = defaultdict(NodeView)
        known: dict[int, Any] = {n: SimpleNamespace(number=n, checked_offset=0) for n in NUMBERS}
        state = SimpleNamespace(
            sessions=SimpleNamespace(inputs=known), partitions=SimpleNamespace(by_number=known)
        )
        merged = SimpleNamespace(merger=SimpleNamespace(samples={}))
        unknown: Any = SimpleNamespace
        self.reporter = Reporter(
            Presence(NODE),
            1,
            replica=unknown(machine=unknown(state=state), merged_by_majority=lambda cursors: None),
            coordinator=unknown(
                positions=lambda node, boot, places: self.views[node].places.update(places),
                merged=lambda node, boot, merged, _: self.views[node].merged_durable.update(merged),
                views=self.views,
                cursors=self.cursors,
                direct=unknown(open=self.direct),
            ),
            intake=unknown(ended={}, vouched=lambda numbers: dict.fromkeys(numbers, RUN_0)),
            merging=unknown(
                partitions=dict.fromkeys(NUMBERS, merged),
                merged_durable=lambda numbers: {n: self.durable[n] for n in numbers},
            ),
            peers=self,
            raft=raft,
        )
        for number in PEERS:
            self.reporter.tell_everything(number)
        self.reporter.state_all()

    @property
    def numbers(self) -> list[int]:
        return list(self.peers)

    @property
    def connected(self) -> list[int]:
        return [number for number, peer in self.peers.items() if peer.connected]

    def send(self, to: int, message: PeerMessage) -> bool:
        peer = self.peers[to]
        if peer.connected and peer.writable:
            peer.hear(message)
        return peer.connected and peer.writable

    def send_all(self, message: PeerMessage) -> None:
        for number in self.peers:
            self.send(number, message)

    def send_raft(
        self, group: int, to: int, messages: object, replicas: tuple[int, int] = (0, 0)
    ) -> None:
        """Nothing of Raft is told here."""

    # --- what happens -----------------------------------------------------------------------------

    def move(self, number: int, value: int) -> None:
        self.reporter.state({number: SessionPosition(1, 0, value)})

    def merge(self, number: int, value: int) -> None:
        self.durable[number] = value
        self.reporter.state_merged([number])

    def agree(self, number: int, value: int) -> None:
        if self.raft.leader == NODE:
            self.reporter.cursors({number: value})

    def lead(self, number: int, value: int) -> None:
        self.raft.leader = number
        if number == NODE:
            self.reporter.leadership_won()
        else:
            self.reporter.tell_everything(number)

    def stick(self, number: int, value: int) -> None:
        """Nothing more can be sent to a peer, or it can again."""
        self.peers[1 + value % 2].writable = number == 0

    def part(self, number: int, value: int) -> None:
        """A connection breaks."""
        self.peers[1 + value % 2].connected = False

    def meet(self, number: int, value: int) -> None:
        """A peer that knows nothing connects."""
        peer = self.peers[1 + value % 2]
        if not peer.connected:
            peer.connected = True
            peer.forget()
            self.reporter.tell_everything(1 + value % 2)

    def tick(self, number: int, value: int) -> None:
        self.now += value / 10
        self.reporter.tick(self.now)

    def come_to_rest(self) -> None:
        """All are there, can be sent to, and this node leads."""
        for number, peer in self.peers.items():
            self.meet(0, number - 1)
            peer.writable = True
        self.lead(NODE, 0)
        self.tick(0, 20)


HAPPENINGS = ("move", "merge", "agree", "lead", "stick", "part", "meet", "tick")
steps = st.tuples(st.sampled_from(HAPPENINGS), st.sampled_from(NUMBERS), st.integers(1, 9))


@given(st.lists(steps, max_size=30))
def test_in_the_end_every_peer_knows_what_this_node_knows(happens: list[Any]) -> None:
    world = World()
    for what, number, value in happens:
        getattr(world, what)(number, value)
    world.come_to_rest()
    own = world.views[NODE]
    for peer in world.peers.values():
        assert (peer.places, peer.merged) == (own.places, own.merged_durable)
        assert peer.cursors == world.cursors


def test_a_new_member_that_is_connected_is_told_everything() -> None:
    """Its replica may be older than its place in the group, and its connection, too."""
    world = World()
    world.reporter.follow_members({NODE, 1})
    world.peers[2].forget()
    world.move(1, 5)
    world.reporter.follow_members({NODE, 1, 2})
    world.tick(0, 20)
    assert world.peers[2].places == world.views[NODE].places


def test_a_cursor_that_could_not_be_sent_is_repeated() -> None:
    """The last one before a pause: no later one says it too."""
    world = World()
    world.peers[2].writable = False
    world.agree(1, 7)
    assert (world.peers[1].cursors, world.peers[2].cursors) == ({1: 7}, {})
    world.peers[2].writable = True
    world.tick(0, 1)
    assert world.peers[2].cursors == {1: 7}


def test_who_becomes_leader_and_could_not_be_told_everything_is_told_later() -> None:
    world = World()
    world.move(1, 5)
    world.peers[2].forget()
    world.peers[2].writable = False
    world.lead(2, 0)
    world.peers[2].writable = True
    world.tick(0, 1)
    assert world.peers[2].places == world.views[NODE].places


def test_what_a_peer_knows_is_not_told_again() -> None:
    world = World()
    world.move(1, 5)
    world.merge(1, 5)
    world.agree(1, 5)
    world.tick(0, 1)
    before = [peer.messages for peer in world.peers.values()]
    world.tick(0, 20)
    assert [peer.messages for peer in world.peers.values()] == before


def test_a_late_cursor_of_an_older_leader_takes_nothing_back() -> None:
    world = World()
    world.raft.leader = 2
    heard: list[Mapping[int, int]] = [{1: 7}, {1: 5}]
    for cursors in heard:
        world.reporter.cursors_heard(cursors)
    assert world.cursors == {1: 7}
    world.raft.leader = NODE
    world.reporter.cursors_heard({1: 9})
    assert world.cursors == {1: 7}


def test_positions_that_no_peer_waits_for_are_reported_once_a_second() -> None:
    """The leader names the input, so that its entries say as much."""
    world = World()
    world.direct[1] = object()
    world.move(1, 1)
    world.tick(0, 20)
    before = [peer.messages for peer in world.peers.values()]
    for value in range(2, 10):
        world.move(1, value)
        world.tick(0, 1)
    assert [peer.messages for peer in world.peers.values()] == before
    world.merge(1, 9)
    world.tick(0, 1)
    assert world.peers[1].merged[1] == 9, "an offset does not wait"
    world.tick(0, 1)
    assert [peer.messages for peer in world.peers.values()] == [count + 2 for count in before]
    assert world.peers[1].places[1].byte == 9


def test_positions_that_are_not_named_without_reports_are_reported_at_the_next_tick() -> None:
    world = World()
    world.tick(0, 20)
    world.move(1, 5)
    world.tick(0, 1)
    assert world.peers[2].places[1].byte == 5


def test_a_follower_whose_leader_names_an_input_no_more_reports_it_at_the_next_look() -> None:
    world = World()
    world.lead(1, 0)
    world.move(0, 5)
    world.merge(0, 5)
    world.tick(0, 20)
    world.reporter.quiet.numbers.add(1)
    world.move(1, 5)
    world.tick(0, 1)
    assert world.peers[1].places[1] == RUN_0, "an entry that names it may be on its way"
    world.tick(0, 1)
    assert world.peers[1].places[1].byte == 5
    world.move(1, 6)
    assert world.peers[1].places[1].byte == 6, "at once from now on"
