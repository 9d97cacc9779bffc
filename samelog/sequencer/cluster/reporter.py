"""What a node says of itself to the others: positions, cursors, checksums, ended runs.

Positions that the leader waits for go to it at once. Positions of inputs that it does not name
without reports, and merged-durable offsets, go to the others at the next tick; everything else goes
out once a second, together. A peer that (re)connects receives everything. What a peer was not
told yet is kept as numbers, for each peer (`Untold`): what they stand at is looked up when it is
told, so that a message that could not be sent is repeated, and nothing that did not change is
looked at. Nothing is said before `state_all`: until this node has applied what was committed before
it started, it cannot know what its files are worth (rule raft.2).

Invariant: a position is stated only when this node can vouch for it: durable (with
`fsync=interval`: written), or merged according to the replicated state. Whatever changed stays
untold to a peer until a message with it was sent on a connection that still stands.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from samelog.consensus import Raft
from samelog.format.positions import SessionPosition
from samelog.sequencer.cluster.ended_runs import EndedRuns
from samelog.sequencer.cluster.peers import PeerSender, make_report
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.events import Ends
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.direct import QuietInputs
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.raft.views import KeptFiles
from samelog.sequencer.state.instructions import Range
from samelog.wire.bounds import Health
from samelog.wire.peer_messages import Cursors, PartitionOffset, Report

REPORT_S = 1.0
"""Between two reports of positions that no peer waits for."""
SAMPLES_REPORTED = 4
"""Of each partition: nodes need a common one, not all."""


@dataclass(slots=True)
class Untold:
    """What one peer has not been told: inputs whose position, partitions whose merged-durable
    offset, files or cursor changed; whether this node's health did. Positions wait until
    `due_at`, unless something is urgent.
    """

    places: set[int] = field(default_factory=set)
    merged: set[int] = field(default_factory=set)
    cursors: set[int] = field(default_factory=set)
    files: set[int] = field(default_factory=set)
    health: bool = False
    is_urgent: bool = False
    due_at: float = 0.0

    @property
    def is_report(self) -> bool:
        """Whether there is something for a report."""
        return bool(self.places or self.merged or self.files or self.health)


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
        self.quiet = QuietInputs()
        self.ended = EndedRuns()
        self._untold: dict[int, Untold] = {}
        """Of every peer that ever connected."""

    # --- positions --------------------------------------------------------------------------------

    def state_all(self) -> None:
        """State every position, here and to all peers: this node is as current as the cluster."""
        self._may_state = True
        places = self._intake.vouched(tuple(self._replica.machine.state.sessions.inputs))
        self._coordinator.positions(self._number, self._boot, places)
        self.state_merged(self._merging.partitions)
        for number in self._peers.numbers:
            self.tell_everything(number)

    def state_again(self) -> None:
        """The replicated state was replaced: what was said before may be stale."""
        if self._may_state:
            self.state_all()

    def state(self, places: Mapping[int, SessionPosition], *, is_answer: bool = False) -> None:
        """Positions moved: tell the others soon, and the leader at once, of what it does not name
        without being told, or all of it if it has asked.
        """
        if not self._may_state:
            return
        self._coordinator.positions(self._number, self._boot, places)
        quiet, urgent = self.quiet.numbers, places
        if quiet:
            self.quiet.stated(places.keys() & quiet)
            if not is_answer:
                urgent = {number: places[number] for number in places.keys() - quiet}
        if self._untold:
            self._note_untold(places, urgent, is_answer=is_answer)

    def _note_untold(
        self,
        places: Mapping[int, SessionPosition],
        urgent: Mapping[int, SessionPosition],
        *,
        is_answer: bool,
    ) -> None:
        leader = self._raft.leader
        told = self._tell_leader(leader, urgent) if urgent or is_answer else ()
        is_awaited = (  # followers wait for positions that the leader does not name yet
            leader == self._number and not places.keys() <= self._coordinator.direct.open.keys()
        )
        for number, untold in self._untold.items():
            if number == leader:
                untold.places.update(places.keys() - told)
                untold.is_urgent |= bool(urgent) and not told
            else:
                untold.places.update(places)
                untold.is_urgent |= is_awaited

    def _tell_leader(
        self, leader: int | None, places: Mapping[int, SessionPosition]
    ) -> Iterable[int]:
        """Report to the leader: the inputs that it was told of."""
        if leader not in self._untold:
            return ()
        report = make_report(boot=self._boot, places=places, merged={}, samples={}, files={})
        if not self._peers.send(leader, report):
            return ()
        self.quiet.told(places)
        return places

    def named(self, parts: Sequence[Range]) -> None:
        """An entry of the leader names these ranges, all of which are here."""
        self.quiet.named(parts)

    def answer(self, session: str) -> None:
        """The leader asks how much of a session's run this node holds."""
        inputs = self._replica.machine.state.sessions.inputs_of(session)
        self.state(self._intake.vouched([entry.number for entry in inputs]), is_answer=True)

    def state_session(self, session: str) -> None:
        """A run of the session was opened or closed: its inputs stand elsewhere."""
        inputs = self._replica.machine.state.sessions.inputs_of(session)
        self.state(self._intake.vouched([entry.number for entry in inputs]))

    def state_merged(self, numbers: Iterable[int]) -> None:
        """More of these partitions is merged-durable here."""
        if not self._may_state:
            return
        durable = self._merging.merged_durable(numbers)
        self._coordinator.merged(self._number, self._boot, durable, self._samples(durable))
        for untold in self._untold.values():
            untold.merged.update(durable)

    @property
    def states(self) -> bool:
        """Whether this node states anything yet."""
        return self._may_state

    def state_files(self, kept: Mapping[int, KeptFiles]) -> None:
        """State what this node has on its disk of partitions of which that changed."""
        self._coordinator.files(self._number, self._boot, kept)
        for untold in self._untold.values():
            untold.files.update(kept)

    def _samples(self, numbers: Iterable[int]) -> dict[int, dict[int, int]]:
        """Checksums that are not agreed on yet, the newest few of each of these partitions."""
        partitions = self._replica.machine.state.partitions.by_number
        samples: dict[int, dict[int, int]] = {}
        for number in numbers:
            merged, known = self._merging.partitions.get(number), partitions.get(number)
            if merged is None or known is None or not merged.merger.samples:
                continue
            newest = list(merged.merger.samples.items())[-SAMPLES_REPORTED:]
            fresh = {o: value for o, value in newest if o > known.checked_offset}
            if fresh:
                samples[number] = fresh
        return samples

    def state_health(self, health: Health) -> None:
        """Disk and clock: once a second."""
        self._presence.heard(self._number, health)
        for untold in self._untold.values():
            untold.health = True

    @property
    def is_busy(self) -> bool:
        """Whether somebody who can be told has not been told everything."""
        known = map(self._untold.get, self._peers.connected)
        return not self._may_state or any(
            untold is not None and (untold.is_report or untold.cursors) for untold in known
        )

    # --- telling peers ----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Tell peers what they have not been told, and the leader which runs wait to be closed."""
        leader = self._raft.leader
        if self._intake.ended:
            self._tell_ended(leader)
        if self.quiet.numbers:
            loud = self.quiet.look(self._coordinator.views[self._number].places)
            if loud and leader in self._untold:
                self._untold[leader].is_urgent = True
        for number in self._peers.connected:
            untold = self._untold.get(number)
            if untold is not None:
                self._tell(number, untold, now)

    def tell_everything(self, number: int) -> None:
        """Tell one peer all there is: it just connected, or just became leader."""
        self._tell_ended(number)
        view = self._coordinator.views[self._number]
        cursors = set(self._coordinator.cursors)
        told = set(view.places), set(view.merged_durable), cursors, set(view.files)
        untold = Untold(*told, health=True)
        self._untold[number] = untold
        self._tell(number, untold, 0.0)

    def _tell(self, number: int, untold: Untold, now: float) -> None:
        if not self._may_state:
            return
        is_whole = untold.is_urgent or now >= untold.due_at
        if untold.merged or untold.files or (is_whole and untold.is_report):
            self._send_report(number, untold, is_whole=is_whole)
            if not untold.is_report:
                untold.due_at = now + REPORT_S
        if untold.cursors and self._tell_cursors(number, untold.cursors):
            untold.cursors = set()

    def _send_report(self, number: int, untold: Untold, *, is_whole: bool) -> None:
        """Tell a peer merged-durable offsets and files, and positions and health if the report is
        whole.
        """
        report = self._report(untold, is_whole=is_whole)
        if not self._peers.send(number, report):
            return
        untold.merged, untold.files = set(), set()
        if is_whole:
            if number == self._raft.leader:
                self.quiet.told({n: SessionPosition(*place) for n, *place in report.positions})
            untold.places, untold.health, untold.is_urgent = set(), False, False

    def _report(self, untold: Untold, *, is_whole: bool) -> Report:
        view = self._coordinator.views[self._number]
        state = self._replica.machine.state
        places = untold.places if is_whole else ()
        known = state.partitions.by_number
        return make_report(
            boot=self._boot,
            places={n: view.places[n] for n in places if n in state.sessions.inputs},
            merged={n: view.merged_durable[n] for n in untold.merged if n in known},
            samples=self._samples(untold.merged),
            health=self._presence.health.get(self._number) if is_whole and untold.health else None,
            files={n: view.files[n] for n in untold.files if n in known},
        )

    def _tell_cursors(self, number: int, partitions: Iterable[int]) -> bool:
        """Whether a peer knows them: it was told now, or hears them from whoever leads."""
        if self._raft.leader != self._number:
            return True
        known, there = self._coordinator.cursors, self._replica.machine.state.partitions.by_number
        cursors = tuple(PartitionOffset(n, known[n]) for n in partitions if n in there)
        return self._peers.send(number, Cursors(cursors))

    def follow_members(self, members: Container[int]) -> None:
        """These are members now. A new one receives everything, if its connection stands already:
        it may hold a replica since before it was a member.
        """
        for number in [number for number in self._untold if number not in members]:
            del self._untold[number]
        for number in self._peers.connected:
            if number in members and number not in self._untold:
                self.tell_everything(number)

    def _tell_ended(self, number: int | None) -> None:
        """Tell one node which runs wait to be closed: it may not have known of a run before."""
        for session, (run_id, ends) in list(self._intake.ended.items()):
            if number == self._number:
                self._coordinator.run_ended(session, run_id, ends)
            elif number is not None:
                self.ask_ends(session, run_id, ends, [number])

    def ask_ends(self, session: str, run_id: str, ends: Ends, nodes: Iterable[int]) -> None:
        """Tell these peers of an ended run. If this node leads, they answer how much they hold."""
        for number in nodes:
            self.ended.tell(session, run_id, ends, partial(self._peers.send, number), to=number)

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender connected here has finished a run: the leader has to know."""
        self._coordinator.run_ended(session, run_id, ends)
        self.tell_ended(session, run_id, ends)

    def tell_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """Tell all peers of an ended run."""
        self.ended.tell(session, run_id, ends, self._peers.send_all)

    def cursors(self, cursors: Mapping[int, int]) -> None:
        """This node leads and knows what a majority has merged-durable: here, and to all."""
        self._coordinator.cursors.update(cursors)
        self._replica.merged_by_majority(cursors)
        for number, untold in self._untold.items():
            if not self._tell_cursors(number, cursors):
                untold.cursors.update(cursors)

    def cursors_heard(self, cursors: Mapping[int, int]) -> None:
        """Another node leads, or did: a majority has merged-durable up to these offsets."""
        if self._raft.leader == self._number:
            return
        known = self._coordinator.cursors
        for number, offset in cursors.items():
            known[number] = max(offset, known.get(number, 0))
        self._replica.merged_by_majority(cursors)

    def leadership_won(self) -> None:
        """What the last leader said may not have reached everybody."""
        for untold in self._untold.values():
            untold.cursors.update(self._coordinator.cursors)
