"""One simulated world: a cluster, its publishers and subscribers, and everything that happens to
them.

First a safety phase, in which anything may fail at any time; then everything is healed, and all
that was published must be merged everywhere within bounded time.

Invariant: the same options give the same steps, to the byte.
"""

from __future__ import annotations

import gc
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

from samelog.consensus import NotLeader
from samelog.sequencer.compaction import compactor
from samelog.sequencer.keys import keeper
from samelog.sequencer.merge import merger
from samelog.sequencer.node import Node
from samelog.sequencer.raft import member_log, snapshots
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables import sessions as session_table
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.merged.log import MergedLog
from tests import tiers
from tests.cluster_sim import rejections
from tests.cluster_sim.actor import Actor
from tests.cluster_sim.canonical import CanonicalLog
from tests.cluster_sim.checked import Misfits, lacks_schema
from tests.cluster_sim.checker import Checker
from tests.cluster_sim.cut_leaders import CutLeaders
from tests.cluster_sim.data_groups import DataGroups
from tests.cluster_sim.determinism import nothing_real
from tests.cluster_sim.faults import Faults
from tests.cluster_sim.forgetting import Forgetting, shorter
from tests.cluster_sim.history import History
from tests.cluster_sim.inode import Inode
from tests.cluster_sim.kinds import MIRROR, settings_of
from tests.cluster_sim.loop import SimLoop
from tests.cluster_sim.membership import Membership
from tests.cluster_sim.mirrored import SOURCE
from tests.cluster_sim.network import Network
from tests.cluster_sim.new_kind import known
from tests.cluster_sim.node import NodeActor
from tests.cluster_sim.options import Options
from tests.cluster_sim.pattern_reader import PatternReaderActor
from tests.cluster_sim.process import Process
from tests.cluster_sim.publisher import PublisherActor
from tests.cluster_sim.recreation import Recreation, RecreationChecker
from tests.cluster_sim.resets import Resets
from tests.cluster_sim.rot import Rotting, RottingChecker
from tests.cluster_sim.spanning import Spanning
from tests.cluster_sim.stalled_groups import StalledGroups
from tests.cluster_sim.subscriber import SubscriberActor
from tests.cluster_sim.transactions import Transactions
from tests.cluster_sim.upgrades import Upgrades
from tests.cluster_sim.violation import Violation
from tests.simulation.trace import Trace

LIVENESS_S, LIVENESS_OF_A_GROUP_S = 90.0, 15.0
LOOK_EVERY_S = 0.25
SAMPLE_RECORDS = 32
BLOCK_RECORDS = 16


class World:
    """Everything of one seed."""

    def __init__(self, options: Options, *, is_verbose: bool = False) -> None:
        tiers.require("simulates")
        self.options = options
        self.loop = SimLoop(self._on_error)  # type: ignore[abstract]
        self.network = self.loop.network = Network(self.loop, options.seed)
        self.network.latency_s = options.latency_s
        self.network.slow_chance, self.network.slow_s = options.slow_chance, options.slow_s
        self.network.split_chance = options.split_chance
        self.trace = Trace(self.loop.time, is_verbose=is_verbose)
        self.history = History()
        self.misfits = Misfits()
        self.are_checked = False
        """Whether all topics have their schemas, which nodes check."""
        self.copies: dict[str, bytes] = {}
        """What the target of copies holds, by name."""
        checker = RottingChecker if options.rots else Checker
        self.checker = RecreationChecker(self) if options.recreates else checker(self)
        self.checker.lineage.horizon = options.horizon if options.first_keys else None
        self.processes: list[Process] = []
        self.is_healed = False
        self.is_quiet = False
        """Nothing new is published."""
        self.nodes = [NodeActor(self, number) for number in range(options.nodes)]
        self.publishers = [PublisherActor(self, number) for number in range(options.publishers)]
        reader = PatternReaderActor if options.recreates else SubscriberActor
        self.subscribers = [reader(self, number) for number in range(options.subscribers)]
        everyone: list[Actor] = [*self.nodes, *self.publishers, *self.subscribers]
        self.actors = {actor.host: actor for actor in everyone}
        self.membership = Membership(self)
        self.rotting = Rotting(self)
        self.faults = Faults(self)
        self.resets = Resets(self)
        self.recreation = Recreation(self)
        self.upgrades = Upgrades(self)
        self.spanning = Spanning(self)
        self.transactions = Transactions(self)
        self.data_groups = DataGroups(self)
        self.cut_leaders = CutLeaders(self)
        self.stalled_groups = StalledGroups(self)
        self.forgetting = Forgetting(self)
        self._violation: Violation | None = None
        self._done: Callable[[], bool] = lambda: False
        self._next_look = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether publishers are to write."""
        if self.is_healed:
            return not self.is_quiet
        return self.options.rhythm.is_busy(self.loop.time())

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases. Raises Violation."""
        with _knobs(self.options), nothing_real(self.loop, self.options.seed), self._logs():
            try:
                self.upgrades.plan()
                for actor in self.actors.values():
                    actor.start()
                self.faults.plan()
                self.resets.plan()
                self.recreation.plan()
                self.membership.plan()
                self.transactions.plan()
                self.data_groups.plan()
                self.cut_leaders.plan()
                self.stalled_groups.plan()
                self.forgetting.plan()
                self.spanning.plan()
                self.create_topics()
                self._run_until(self.options.safety_s)
                self._check_liveness()
                self.checker.check_end()
                self.spanning.check_end()
                self.transactions.check_end()
                gc.collect()
                self._run_until(self.loop.time())
            finally:
                self.loop.close_world([task for p in self.processes for task in p.tasks])
                self.processes.clear()
                for actor in self.actors.values():
                    actor.gone()
                gc.collect()

    def _run_until(self, end: float) -> bool:
        reached = self.loop.run_until(end, self._after_step)
        if self._violation is not None:
            raise self._violation
        return reached

    def _after_step(self, process: Process) -> bool:
        """Whether to stop here."""
        if process.is_alive:
            try:
                process.look()
            except Violation as violation:
                self.violated(violation)
        if self._violation is not None:
            return True
        now = self.loop.time()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_EVERY_S
        for each in self.processes:
            each.forget_done()
        return self._violation is not None or self._done()

    def _check_liveness(self) -> None:
        self.is_healed = True
        self.trace.event("world", "is healed")
        self.faults.heal()
        self._run_until(self.loop.time() + 1.0)
        self.is_quiet = True
        self._done = lambda: not self.waits_for()
        groups = self.options.data_groups if self.options.has_many_groups else 0
        within_s = LIVENESS_S + groups * LIVENESS_OF_A_GROUP_S
        if not self._run_until(self.loop.time() + within_s):
            raise Violation("everything is merged in time", self.waits_for())

    def waits_for(self) -> str:
        """What is not as it must be at the end; empty: nothing."""
        for publisher in self.publishers:
            if waits := publisher.waits_for():
                return waits
        parts = (
            self.resets,
            self.recreation,
            self.membership,
            self.upgrades,
            self.transactions,
            self.data_groups,
            self.spanning,
        )
        if waits := next(filter(None, (part.waits_for() for part in parts)), ""):
            return waits
        lineage = self.checker.lineage
        for (log_id, _), log in lineage.logs.items():
            name = log.topic, log.partition
            if not lineage.is_present(log_id, name):
                continue
            nodes = self.data_groups.holders(name) or self.nodes
            for actor in (*nodes, *self.subscribers):
                if not _is_excused(actor) and (waits := _lacks(actor, log_id, log)):
                    return waits
        return ""

    def create_topics(self) -> None:
        """Ask whoever leads, until there are all topics."""
        missing = [f"t{number}" for number in range(self.options.topics)]
        for actor in self.nodes:
            node, process = actor.node, actor.process
            if node is None or process is None or not node.raft.group.is_leader:
                continue
            machine = node.raft.replica.machine
            there = [
                each for name in missing if (each := machine.state.topics.named(name)) is not None
            ]
            missing = [name for name in missing if machine.state.topics.named(name) is None]
            if self.options.misfits:
                schemas = [each for each in map(lacks_schema, there) if each is not None]
                for schema in schemas:
                    self.loop.call_in(process, 0.0, _propose, node, schema)
                self.are_checked |= not (missing or schemas)
            for name in missing:
                settings = settings_of(self.options)
                given = uuid.uuid4().hex, name, self.options.partitions, settings, 0
                source = SOURCE if self.options.kind == MIRROR else None
                command = CreateTopicCommand(*given, source=source)
                self.loop.call_in(process, 0.0, _propose, node, command)
        if missing or (self.options.misfits and not self.are_checked):
            self.later(0.2, self.create_topics)

    # --- what happens -----------------------------------------------------------------------------

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Have the world do something."""
        self.loop.call_in(self.loop.outside, delay, action)

    def violated(self, violation: Violation) -> None:
        """Stop behind this step."""
        self._violation = self._violation or violation

    def judge(self, look: Callable[..., None], *what: object) -> None:
        """Have something judged within a call of the product, which may keep errors to itself."""
        try:
            look(*what)
        except Violation as violation:
            self.violated(violation)
            raise

    def operator_wipes(self, actor: NodeActor) -> None:
        """A node says that its disk is damaged: it gets an empty one."""
        self.trace.event(actor.host, "asks for an empty disk")
        actor.wipe()

    def _on_error(self, process: Process, context: dict[str, Any]) -> None:
        """Something failed and nobody took it."""
        error = context.get("exception")
        if isinstance(error, Violation):
            self.violated(error)
        elif process.is_alive:
            detail = f"{process.name}: {context['message']}: {error!r}"
            self.trace.event(process.name, detail)
            violation = Violation("no errors", detail)
            violation.__cause__ = error
            self.violated(violation)

    @contextmanager
    def _logs(self) -> Iterator[None]:
        """What the product logs goes into the trace; an error with a traceback is a defect."""
        handler = _Handler(self)
        product = logging.getLogger("samelog")
        level, propagates = product.level, product.propagate
        product.addHandler(handler)
        product.setLevel(logging.INFO)
        product.propagate = False
        try:
            yield
        finally:
            product.removeHandler(handler)
            product.setLevel(level)
            product.propagate = propagates


class _Handler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        who = world.loop.current.name
        world.trace.event(who, f"{record.levelname.lower()}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None and record.levelno >= logging.ERROR:
            violation = Violation("no errors", f"{who}: {record.getMessage()}")
            violation.__cause__ = record.exc_info[1]
            world.violated(violation)


def _propose(node: Node, command: CreateTopicCommand | SetSchemaCommand) -> None:
    """Whether it is committed is looked at later."""
    with suppress(NotLeader):
        node.raft.group.propose([command])


def _is_excused(actor: Actor) -> bool:
    """Whether nobody expects it to have everything."""
    return actor.stays_away or (isinstance(actor, NodeActor) and actor.has_rotten)


def _lacks(actor: Actor, log_id: str, wanted: CanonicalLog) -> str:
    """What an actor has not merged or copied, or not archived."""
    name = f"{wanted.topic}-{wanted.partition}"
    found = _log_of(actor, (wanted.topic, wanted.partition))
    if found is None and wanted.next_offset == 0:
        return ""  # a node opens no log before its first record
    if found is None or found.topic_id != log_id or found.next_offset < wanted.next_offset:
        held = "nothing" if found is None else found.next_offset
        return f"{actor.host} has {held} of {wanted.next_offset} in {name}"
    if found.log_start.segment < wanted.archived:
        return f"{actor.host} has archived {found.log_start} of {wanted.archived} in {name}"
    for base in wanted.segments:
        inode = actor.disk.find(f"{found.path}/{base:020d}.log")
        if base < wanted.archived and isinstance(inode, Inode) and len(inode.data):
            return f"{actor.host} has not truncated segment {base} of {name}"
    return ""


def _log_of(actor: Actor, name: tuple[str, int]) -> MergedLog | None:
    if isinstance(actor, NodeActor) and actor.node is not None:
        node, groups = actor.node, actor.world.checker.groups
        logs = [known.log for known in node.logs.merging.partitions.values()]
        logs += groups.logs_of(node)
        return next((log for log in logs if (log.topic, log.partition) == name), None)
    if isinstance(actor, SubscriberActor) and actor.client is not None:
        copy = actor.client.copies.get(name)
        return None if copy is None else copy.log
    return None


@contextmanager
def _knobs(options: Options) -> Iterator[None]:
    """Sizes that take gigabytes to reach, made small."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(snapshots, "TAIL_ENTRIES", options.kept_entries))
        stack.enter_context(patch.object(member_log, "FILE_BYTES", options.wal_bytes))
        stack.enter_context(patch.object(merger, "SAMPLE_RECORDS", SAMPLE_RECORDS))
        stack.enter_context(patch.object(session_table, "RUNS_REMEMBERED", options.runs_remembered))
        stack.enter_context(patch.object(compactor, "INTERVAL_S", 0.3))
        stack.enter_context(patch.object(keeper, "STORE_AFTER_S", 0.3))
        stack.enter_context(patch.object(key_table, "BLOCK_RECORDS", BLOCK_RECORDS))
        stack.enter_context(patch.object(compactor, "MEMORY_BYTES", 0))
        stack.enter_context(known())
        stack.enter_context(rejections.watched())
        if options.forgets:
            stack.enter_context(shorter())
        yield
