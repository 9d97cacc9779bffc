"""What a node says of itself to the others: positions, cursors, checksums, ended runs.

New positions go to the leader at once and to the other peers a little later, together; a peer that
(re)connects hears everything anew. Nothing is said before `state_all`: until this node has applied
what was committed before it started, it cannot know what its files are worth (invariants.md, rule
14).

Invariant: a position is stated only when this node can vouch for it: durable (with
`fsync=interval`: written), or merged according to the replicated state.
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.consensus import Raft
from samelog.format.positions import SessionPosition
from samelog.sequencer.cluster.peers import PeerSender, make_report, make_run_ended
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.events import Ends
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.replica import Replica
from samelog.wire.bounds import Health
from samelog.wire.peer_messages import Cursors, PartitionOffset

SAMPLES_REPORTED = 4
"""Of each partition: nodes need a common one, not all."""


class Reporter:
    """One node's reports."""

    def __init__(
        self,
        presence: Presence,
        boot: int,
        *,
        replica: Replica,
        coordinator: Coordinator,
        intake: Intake,
        merging: Merging,
        peers: PeerSender,
        raft: Raft,
    ) -> None:
        self._number = presence.number
        self._presence = presence
        self._boot = boot
        self._replica = replica
        self._coordinator = coordinator
        self._intake = intake
        self._merging = merging
        self._peers = peers
        self._raft = raft
        self._may_state = False
        self._unreported: dict[int, SessionPosition] = {}
        self._stated_merged: dict[int, int] = {}
        self._health: Health | None = None
        """Not told yet."""

    # --- positions --------------------------------------------------------------------------------

    def state_all(self) -> None:
        """State every position, here and to all peers: this node is as current as the cluster."""
        self._may_state = True
        inputs = self._replica.machine.state.inputs.values()
        places = {entry.number: self._intake.vouched(entry) for entry in inputs}
        self._coordinator.positions(self._number, self._boot, places)
        self.state_merged()
        for number in self._peers.numbers:
            self.tell_everything(number)

    def state_again(self) -> None:
        """The replicated state was replaced: what was said before may be stale."""
        if self._may_state:
            self.state_all()

    def state(self, places: Mapping[int, SessionPosition]) -> None:
        """Positions moved: tell the leader at once, the others soon."""
        if not self._may_state:
            return
        self._coordinator.positions(self._number, self._boot, places)
        leader = self._raft.leader
        if leader is not None and leader != self._number:
            self._peers.send(leader, make_report(boot=self._boot, places=places))
        self._unreported.update(places)

    def state_session(self, session: str) -> None:
        """A run of the session was opened or closed: its inputs stand elsewhere."""
        inputs = self._replica.machine.inputs_of(session)
        self.state({entry.number: self._intake.vouched(entry) for entry in inputs})

    def state_merged(self) -> None:
        """More is merged-durable here."""
        if self._may_state:
            self._coordinator.merged(self._number, self._merging.merged_durable(), self._samples())

    def _samples(self) -> dict[tuple[int, int], int]:
        """Checksums that are not agreed on yet, the newest few of each partition."""
        partitions = self._replica.machine.state.partitions
        samples: dict[tuple[int, int], int] = {}
        for number, merged in self._merging.partitions.items():
            known = partitions.get(number)
            checked = 0 if known is None else known.checked_offset
            newest = list(merged.merger.samples.items())[-SAMPLES_REPORTED:]
            samples.update({(number, o): value for o, value in newest if o > checked})
        return samples

    def state_health(self, health: Health) -> None:
        """Disk and clock: once a second."""
        self._presence.heard(self._number, health)
        self._health = health

    # --- telling peers ----------------------------------------------------------------------------

    def tick(self) -> None:
        """Tell all peers what changed since the last time, and the leader which runs wait to be
        closed.
        """
        if self._intake.ended:
            self._tell_ended(self._raft.leader)
        merged = self._coordinator.views[self._number].merged_durable
        changed = {n: o for n, o in merged.items() if self._stated_merged.get(n) != o}
        if not self._may_state or not (self._unreported or changed or self._health):
            return
        report = make_report(
            boot=self._boot,
            places=self._unreported,
            merged=changed,
            samples=self._samples() if changed else None,
            health=self._health,
        )
        refused = [n for n in self._peers.connected if not self._peers.send(n, report)]
        if not refused:  # who connects later hears everything then
            self._stated_merged.update(changed)
            self._unreported, self._health = {}, None

    def tell_everything(self, number: int) -> None:
        """Tell one peer all there is: it just connected, or just became leader."""
        self._tell_ended(number)
        if not self._may_state:
            return
        view = self._coordinator.views[self._number]
        report = make_report(
            boot=self._boot,
            places=view.places,
            merged=view.merged_durable,
            samples=self._samples(),
            health=self._presence.health.get(self._number),
        )
        self._peers.send(number, report)
        if self._raft.leader == self._number:
            self._peers.send(number, _make_cursors(self._coordinator.cursors))

    def _tell_ended(self, number: int | None) -> None:
        """Tell one node which runs wait to be closed: it may not have known of a run before."""
        for session, (run_id, ends) in list(self._intake.ended.items()):
            if number == self._number:
                self._coordinator.run_ended(session, run_id, ends)
            elif number is not None:
                self._peers.send(number, make_run_ended(session, run_id, ends))

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender connected here has finished a run: the leader has to know."""
        self._coordinator.run_ended(session, run_id, ends)
        self._peers.send_all(make_run_ended(session, run_id, ends))

    def cursors(self, cursors: Mapping[int, int]) -> None:
        """This node leads and knows what a majority has merged-durable: here, and to all."""
        self.released(cursors)
        self._peers.send_all(_make_cursors(cursors))

    def released(self, cursors: Mapping[int, int]) -> None:
        """A majority has merged-durable up to these offsets: inputs below are released."""
        self._coordinator.cursors.update(cursors)
        self._replica.merged_by_majority(cursors)


def _make_cursors(cursors: Mapping[int, int]) -> Cursors:
    return Cursors(tuple(PartitionOffset(*item) for item in cursors.items()))
