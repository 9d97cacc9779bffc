"""Watches a world from outside: the invariants after every step, and all of it at the end.

Watched are: one leader to a term, equal committed entries, equal merged logs that hold nothing
invented, doubled, lost or out of order, acknowledgements only of what is committed and durable on a
majority, files removed only when a majority has them merged, and that no leader plans what it does
not hold.

Invariant: looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.compaction import CompactCommand
from samelog.archiver.copies.manifests import SEGMENTS, CopiedLog
from samelog.consensus import Entry, Role
from samelog.consensus.messages import Vote, VoteReply
from samelog.consensus.wal import scan_wal
from samelog.format.compaction import CompactedSegment
from samelog.format.positions import SessionPosition
from samelog.placement.values import PassStage
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.progress import LostRange
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.members import SetMembers
from samelog.sequencer.state.tables.placement import PlaceTopic
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.merged.log import MergedLog
from samelog.wire.push.layout import Layout
from tests.cluster_sim.actor import CLUSTER
from tests.cluster_sim.canonical import CanonicalLog, End
from tests.cluster_sim.group_checker import GroupChecker
from tests.cluster_sim.held_files import is_durable, is_kept, is_set_aside, segments_from
from tests.cluster_sim.history import Written
from tests.cluster_sim.inode import Inode
from tests.cluster_sim.lineage import Committed, Lineage
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from samelog.replicator.pull.client import PullClient
    from samelog.replicator.push.client import PushClient
    from samelog.sequencer.node import Node
    from samelog.sequencer.state.types import State
    from tests.cluster_sim.actor import Actor
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.publisher import PublisherActor
    from tests.cluster_sim.subscriber import SubscriberActor
    from tests.cluster_sim.world import World


class Checker:
    """All that is known of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lineage = Lineage(world.history)
        self.groups = GroupChecker(world)
        self.entries: dict[int, tuple[int, bytes]] = {}
        self.leaders: dict[int, str] = {}
        self.committed: Committed = {}
        self.elections = 0
        self._votes: dict[tuple[str, int], tuple[int, int]] = {}
        """Host, and number of the node -> (term, candidate) of its last vote."""
        self._looked_at: dict[tuple[str, str, int], End] = {}
        """(process, id and path of the log, partition) -> how far it was compared."""
        self._compacted: dict[tuple[str, str, int], set[CompactedSegment]] = {}
        self._resets: set[str] = set()
        self._epoch = 0
        """The highest leader epoch that was in any log."""

    # --- after every step -------------------------------------------------------------------------

    def look_at_node(self, actor: NodeActor, node: Node) -> None:
        """Who leads, and the logs: they change with the disk alone."""
        raft = node.raft.group.raft
        if raft.role is Role.LEADER and self.leaders.get(raft.term) != actor.host:
            self._leads(actor, raft.term)
        self._plans(actor, node)
        for partition in node.logs.merging.partitions.values():
            self._look_at_log(actor, partition.log, may_be_first=True)
        for log in self.groups.logs_of(node):
            self._look_at_log(actor, log, may_be_first=True)

    def _leads(self, actor: NodeActor, term: int) -> None:
        known = self.leaders.get(term)
        if known is None:
            self.leaders[term] = actor.host
            self.elections += 1
            self.world.trace.event(actor.host, f"leads in term {term}")
        elif known != actor.host:
            raise Violation("one leader", f"{known} and {actor.host} lead in term {term}")

    def _plans(self, actor: NodeActor, node: Node) -> None:
        """What it failed to plan is there: disks fail, and bits rot."""
        coordinator, inputs = node.raft.coordinator, node.logs.machine.state.sessions.inputs
        own = coordinator.views.get(node.member.directory.record.number)
        for number, reason in coordinator.damaged_inputs().items():
            held = None if own is None else own.places.get(number)
            if number in inputs and (
                held is None or held <= coordinator._planner.place(inputs[number])
            ):
                raise Violation("leaders plan what they hold", f"{actor.host}: {reason}")

    def look_at_subscriber(self, actor: SubscriberActor, client: PullClient) -> None:
        """Its copies: they change with the disk alone."""
        for copy in client.copies.values():
            self._look_at_log(actor, copy.log, may_be_first=False)

    def _look_at_log(self, actor: Actor, log: MergedLog, *, may_be_first: bool) -> None:
        """Compare what is new in a merged log."""
        who = actor.process.name if actor.process else ""
        key = who, f"{log.topic_id} {log.path}", log.partition
        end = log.end()
        seen = self._looked_at.get(key)
        if log.generations.segments:
            self._look_at_compacted(actor, log)
        if seen == end:
            return
        canonical = self.lineage.take_up(log.topic, log.topic_id, log.partition)
        if log.log_start.segment > canonical.archived:
            raise Violation(
                "archived is what Raft says",
                f"{actor.host} has {log.path} from {log.log_start} on, not {canonical.archived}",
            )
        start = seen if seen is not None and seen <= end else End(-1, 0)
        for segment in segments_from(log, start.base):
            is_compacted = log.number_of(segment.base_offset) > 0
            if segment.size and segment.base_offset >= start.base and not is_compacted:
                begin = start.byte if segment.base_offset == start.base else 0
                data = self._bytes(actor, log, segment.base_offset, (begin, segment.size))
                at = segment.base_offset, begin
                if not may_be_first and canonical.compacted.holds(*at, data):
                    continue
                known = self._known(actor, log, canonical, at, data)
                if known < len(data):
                    self._new_bytes(
                        actor, canonical, segment.base_offset, data[known:], may_be_first
                    )
        self._looked_at[key] = End(*end)

    def _look_at_compacted(self, actor: Actor, log: MergedLog) -> None:
        """Each compacted segment once in a process."""
        canonical = self.lineage.take_up(log.topic, log.topic_id, log.partition)
        for each in log.generations.segments:
            key = (actor.process.name if actor.process else "", log.topic_id, log.partition)
            seen = self._compacted.setdefault(key, set())
            is_new = log.number_of(each.base) == each.number and each not in seen
            inode = actor.disk.find(f"{log.path}/{each.base:020d}.log")
            if is_new and isinstance(inode, Inode) and not inode.was_damaged:
                seen.add(each)
                data = bytes(inode.data[: each.sealed.size])
                canonical.compacted.stay_ms = self.world.options.tombstones_stay_ms
                at = each.number, each.base, each.stop
                canonical.compacted.look(actor.host, canonical, at, data)

    @staticmethod
    def _known(
        actor: Actor,
        log: MergedLog,
        canonical: CanonicalLog,
        at: tuple[int, int],
        data: memoryview,
    ) -> int:
        """How many of the bytes are known: they must be the same, unless they have rotted since."""
        inode = actor.disk.find(f"{log.path}/{at[0]:020d}.log")
        if isinstance(inode, Inode) and inode.was_damaged:
            return canonical.count_known(*at, len(data))
        return canonical.compare(actor.host, *at, data)

    def _new_bytes(
        self, actor: Actor, canonical: CanonicalLog, base: int, data: memoryview, may: bool
    ) -> None:
        if not may:
            raise Violation("readers see a prefix", f"{actor.host} has what no node has merged")
        canonical.extend(actor.host, base, bytes(data))
        self.world.trace.event(actor.host, f"merges up to {canonical.next_offset}")

    @staticmethod
    def _bytes(actor: Actor, log: MergedLog, base: int, part: tuple[int, int]) -> memoryview:
        inode = actor.disk.find(f"{log.path}/{base:020d}.log")
        if not isinstance(inode, Inode):
            raise Violation("merged logs differ", f"{actor.host} has no segment {base} any more")
        if len(inode.data) < part[1] and not inode.was_damaged:
            text = f"{actor.host} has {len(inode.data)} of {part[1]} bytes of segment {base}"
            raise Violation("archived is what Raft says", text)
        return memoryview(bytes(inode.data[part[0] : part[1]]))

    # --- consensus --------------------------------------------------------------------------------

    def node_opened(self, actor: NodeActor) -> None:
        """It has read its files: they must say for whom it last voted, or a later term."""
        if actor.node is None or actor.forgot or actor.is_condemned:
            return
        promised = self._votes.get((actor.host, actor.node.peers.number))
        known = actor.node.group_replica.store.hard_state
        if promised is None or known.term > promised[0]:
            return
        if (known.term, known.vote) != promised:
            raise Violation("promises stay", f"{actor.host} voted {promised}, and knows {known}")

    def node_says(self, actor: NodeActor, to: int, message: object) -> None:
        """A Raft message leaves: a vote, given or asked for, is a promise."""
        number = actor.node.peers.number if actor.node is not None else actor.number
        if isinstance(message, VoteReply) and message.granted:
            self._votes[actor.host, number] = (message.term, to)
        elif isinstance(message, Vote):
            self._votes[actor.host, number] = (message.term, number)

    def node_started(self, actor: NodeActor) -> None:
        """It runs."""
        self.world.trace.event(actor.host, "runs")

    def applying(self, actor: NodeActor, entry: Entry) -> None:
        """An entry is committed, as this node believes."""
        known = self.entries.get(entry.index)
        if known is None:
            self.entries[entry.index] = (entry.term, bytes(entry.data))
        elif known != (entry.term, bytes(entry.data)):
            raise Violation("committed stays", f"{actor.host} has another entry {entry.index}")

    def applied(self, actor: NodeActor, entry: Entry, outcomes: Sequence[object]) -> None:
        """Its state machine has taken it."""
        if actor.node is None or not entry.data:
            return
        for command, outcome in zip(decode_commands(entry.data), outcomes, strict=True):
            if isinstance(command, CreateTopicCommand) or (
                isinstance(command, PlaceTopic) and self.groups.are_followed
            ):
                self.lineage.told(actor.node.raft.replica.machine.state)
            elif isinstance(command, SetMembers):
                self.world.membership.told(entry.index, command)
            elif isinstance(command, SoftReset | HardReset) and isinstance(outcome, Rejection):
                self.world.resets.refused(command.reset_id, outcome)
            elif isinstance(command, SoftReset | HardReset):
                self._was_reset(actor, command, actor.node.raft.replica.machine.state)
            elif isinstance(command, Merge):
                if isinstance(outcome, Rejection):
                    known = outcome.code in ("UNKNOWN_TOPIC", "UNCHECKED")
                    if known or self._is_planned_again(actor):
                        continue  # planned just before a reset, a version of the schema, or a seal
                    raise Violation("leaders plan what fits", f"{actor.host}: {outcome.message}")
                self._epoch = max(self._epoch, command.epoch)
                for part in command.ranges:
                    self._merge_committed(actor, part)
            elif isinstance(command, CompactCommand) and not isinstance(outcome, Rejection):
                self.ordered(actor.host, actor.node.raft.replica.machine.state, command)
            elif isinstance(command, ArchiveCommand) and not isinstance(outcome, Rejection):
                state, everybody = actor.node.raft.replica.machine.state, self.world.membership
                self.archived("/data", everybody.is_majority, state, command)

    @staticmethod
    def _is_planned_again(actor: NodeActor) -> bool:
        """Whether a partition is leaving group 0: what is planned when it is sealed is rejected,
        and what was planned behind that is planned once more.
        """
        passing = actor.node.cluster.transfers.passing  # type: ignore[union-attr]
        return passing is not None and passing.stage is PassStage.SEALED

    def died_applying(self, actor: NodeActor, entry: Entry, state: State) -> None:
        """It ended while it told others what its state machine has taken: they know of resets."""
        for command in decode_commands(entry.data):
            if isinstance(command, SoftReset | HardReset) and command.reset_id in state.resets.ids:
                self._was_reset(actor, command, state)

    def _was_reset(self, actor: NodeActor, command: SoftReset | HardReset, state: State) -> None:
        self.world.resets.done(command.reset_id)
        if isinstance(command, HardReset) and command.reset_id not in self._resets:
            self._resets.add(command.reset_id)
            self._reset(actor, state)

    def _reset(self, actor: NodeActor, state: State) -> None:
        """All logs restart, with higher epochs than any before."""
        if state.epochs.first <= self._epoch:
            raise Violation("resets fence", f"epochs from {state.epochs.first}, {self._epoch} were")
        self.lineage.was_reset(state, self.committed)
        self.world.trace.event(actor.host, "restarts all logs")

    def _merge_committed(self, actor: NodeActor, part: Range) -> None:
        machine = actor.node.raft.replica.machine  # type: ignore[union-attr]
        entry = machine.state.sessions.inputs.get(part.input)
        if entry is None or entry.place < (part.run, part.roll, part.stop):
            return  # rejected
        session = machine.state.sessions.by_name[entry.session]
        partition = machine.state.partitions.by_number[entry.partition]
        name = (machine.state.topics.by_id[partition.topic_id].name, partition.index)
        run_id = next(run.run_id for run in session.runs if run.number == part.run)
        own_id, place = self._own(entry.session, run_id, name, (part.roll, part.stop))
        key = (entry.session, own_id, name)
        if self.committed.get(key, (-1, 0)) < place:
            self.committed[key] = place
            self._check_durable(entry.session, name, part)

    def _own(
        self, session: str, run_id: str, name: InputName, place: tuple[int, int]
    ) -> tuple[str, tuple[int, int]]:
        """The run's id and the position as its writer counts them."""
        return run_id, place

    def ordered(self, who: str, state: State, command: CompactCommand) -> None:
        """Only what is closed, and what a majority has merged durably, is compacted."""
        partition = state.partitions.by_number[command.partition]
        topic = state.topics.by_id[partition.topic_id]
        log = self.lineage.logs.get((topic.log_id, partition.index))
        if log is None or command.number in log.compacted.orders:
            return
        if command.stop not in log.segments:
            raise Violation("the active file stays", f"{topic.name} is compacted to {command.stop}")
        log.compacted.ordered(command)
        self.world.trace.event(who, f"compacts {topic.name} below {command.stop}")

    def archived(
        self,
        folder: str,
        is_majority: Callable[[Callable[[NodeActor], bool]], bool],
        state: State,
        command: ArchiveCommand,
    ) -> None:
        """Files are archived: none that grows, and a majority has them merged and durable.
        `folder`: of the group.
        """
        partition = state.partitions.by_number[command.partition]
        name = (state.topics.by_id[partition.topic_id].name, partition.index)
        log_id = state.topics.by_id[partition.topic_id].log_id
        log = self.lineage.logs.get((log_id, partition.index))
        if log is None or command.segment <= log.archived:
            return
        if command.segment not in log.segments:
            raise Violation("the active file stays", f"{name} is archived up to {command.segment}")
        for file in command.files:
            path = f"{folder}/merged/{name[0]}-{name[1]}/{file.base:020d}.log"
            size = file.size
            if not is_majority(lambda n, p=path, s=size: is_kept(n, p, s)):  # type: ignore[misc]
                holders = [n.host for n in self.world.nodes if is_kept(n, path, size)]
                raise Violation("a majority archives", f"{path} goes, durable on {holders}")
            self._check_copied(log_id, log, file)
        log.archived = command.segment
        self.world.trace.event(folder, f"archives {name} below {command.segment}")

    def _check_copied(self, log_id: str, log: CanonicalLog, file: ArchivedSegment) -> None:
        """What is to be copied is archived with a whole copy only."""
        if not self.world.options.copies:
            return
        place = CopiedLog(CLUSTER, log.topic, log_id, log.partition)
        copy = self.world.copies.get(place.file(SEGMENTS, file.base))
        known = self.world.copies.get(place.manifest(file.base))
        if known is None or copy != bytes(log.segments[file.base]):
            text = f"{place.file(SEGMENTS, file.base)} is no copy of what is archived"
            raise Violation("archived is copied", text)

    def _check_durable(self, session: str, name: InputName, part: Range) -> None:
        """What is planned for merging is on the disks of a majority."""
        path = f"/data/sessions/{session}/{name[0]}-{name[1]}/log.{part.run}.{part.roll}"

        def holds(node: NodeActor) -> bool:
            is_held = self._is_held(node, path, part.stop)
            return node.forgot or is_held or is_set_aside(node, path, part.stop)

        if not self.world.membership.is_majority(holds):
            holders = [node.host for node in self.world.nodes if holds(node)]
            text = f"{path} up to {part.stop} is durable on {holders} only"
            raise Violation("durable before commit", text)

    def _is_held(self, actor: NodeActor, path: str, size: int) -> bool:
        """Whether its word on a file is true; with `fsync=interval` it may be taken back by
        doubt.
        """
        if not self.world.options.lazy_sync:
            return is_durable(actor, path, size)
        inode = actor.disk.find(path)
        return actor.is_in_doubt or (isinstance(inode, Inode) and len(inode.data) >= size)

    def node_cuts(self, actor: NodeActor, path: str, inode: Inode, size: int) -> None:
        """A file gets shorter: what Raft has promised stays, readable or not, but for the last
        record, of which nobody can tell that it was ever whole.
        """
        if "/raft/wal." not in path or size >= inode.promised_bytes:
            return
        if not inode.was_damaged or scan_wal(inode.data).corrupt is not None:
            text = f"{actor.host} cuts {path} at {size}, {inode.promised_bytes} were durable"
            raise Violation("promises stay", text)

    # --- publishers -------------------------------------------------------------------------------

    def told_acknowledged(
        self, actor: PublisherActor, run_id: str, name: InputName, place: tuple[int, int]
    ) -> None:
        """A publisher hears that its records are acknowledged."""
        history = self.world.history
        for append, _ in history.told_acknowledged(actor.session, run_id, name, place):
            self._check_committed(actor, run_id, name, append)

    def _check_committed(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> None:
        carrying, end = self._as_shipped(actor, run_id, name, append.end)
        reached = self.committed.get((actor.session, carrying, name), (-1, 0))
        if reached < end:
            raise Violation(
                "acknowledged is committed",
                f"{actor.session} {append.numbers} of {name} at {append.end} is not: {reached}",
            )

    def _as_shipped(
        self, actor: PublisherActor, run_id: str, name: InputName, end: tuple[int, int]
    ) -> tuple[str, tuple[int, int]]:
        """Return the run that ships an input's bytes of a run, which a later one may carry, and the
        position there of a position in the files.
        """
        session = cast("PushClient", actor.client)._session
        ids = {run.run: self.world.rotting.own(actor.session, run.run_id) for run in session.runs}
        shipping = session.shipping_if_known(name)
        [number] = [each for each, known in ids.items() if known == run_id]
        if shipping is None or not shipping.carried:
            return run_id, end
        if number != shipping.begin[0] and not shipping.carries(number):
            return run_id, end
        layout = Layout(shipping.begin, shipping.carried)
        return ids[shipping.begin[0]], layout.wire(SessionPosition(number, *end))

    def told_merged(
        self, actor: PublisherActor, run_id: str, name: InputName, place: tuple[int, int]
    ) -> None:
        """A publisher hears that its records are merged on a majority."""
        self.world.history.told_merged(actor.session, run_id, name, place)

    def publisher_stopped(self, actor: PublisherActor, why: str) -> None:
        """Shipping has ended for good."""
        if not actor.is_stopped_for_good:
            self.world.trace.event(actor.host, f"is stopped: {why}")
            if not actor.was_restored:
                raise Violation("publishers ship", f"{actor.session} is stopped: {why}")
            actor.is_stopped_for_good = True

    def publisher_lost(self, actor: PublisherActor, lost: tuple[LostRange, ...]) -> None:
        """The cluster has closed a run before its end."""
        if not actor.disk.is_lossy:
            raise Violation("nothing lost", f"{actor.session} lost {lost[-1]}")

    def publisher_removes(self, actor: PublisherActor, path: str) -> None:
        """A session file goes: a majority must have all of it merged and durable."""
        run, roll = (int(part) for part in path.rsplit("/log.", 1)[1].split("."))
        topic, partition = path.split("/")[-2].rsplit("-", 1)
        name = (topic, int(partition))
        record = None if actor.writer is None else actor.writer.directory.run(run)
        if record is None:
            return
        for known, history in self.world.history.of_run(actor.session, record.run_id):
            if known == name:
                for append in history.appends:
                    is_in = append.end[0] == roll
                    if is_in and not self.is_released(actor, record.run_id, name, append):
                        self._check_merged(actor, name, append, path)

    def is_released(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> bool:
        """Whether a power failure took it before it was shipped."""
        return actor.disk.is_lossy and (
            (actor.session, append.numbers[0]) not in self.world.history.acknowledged
        )

    def _check_merged(
        self, actor: PublisherActor, name: InputName, append: Written, path: str
    ) -> None:
        number = append.numbers[-1]
        if self.lineage.is_given_up(actor.session, number):
            return  # it was committed before a hard reset
        canonical = self.lineage.present(name)
        end = None if canonical is None else canonical.end_of(actor.session, number)
        is_gone = 0 if canonical is None else max(canonical.archived, canonical.compacted.stop)
        if end is not None and end.base < is_gone:
            return  # it was merged and durable on a majority then
        if end is None:
            raise Violation("removed is merged", f"{path} goes, {number} is nowhere merged")
        if not self.groups.is_merged(name, *end):
            text = f"{path} goes, no majority has {number} merged"
            raise Violation("removed is merged", text)

    # --- at the end -------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Everything is quiet: look at all of it. Raises Violation."""
        for session, number in sorted(self.world.history.acknowledged):
            name = self.world.history.published[session, number]
            log = self.lineage.present(name)
            is_elsewhere = name in self.world.spanning.places and not self.groups.are_followed
            if self.lineage.is_given_up(session, number) or is_elsewhere:
                continue
            if log is None or log.end_of(session, number) is None:
                raise Violation("acknowledged is merged", f"{session} {number} is lost")
        for actor in self.world.actors.values():
            if actor.is_up:
                self._looked_at.clear()
                actor.looked_when = ()
                actor.look()
