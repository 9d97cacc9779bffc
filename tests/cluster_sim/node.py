"""A real sequencer node on a simulated machine.

Invariant: everything of the node is what runs in production but its disk, network, clock and
threads.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from samelog.config.tables.node import (
    ArchiveConfig,
    ConnectionLimits,
    Fsync,
    Grant,
    NodeConfig,
    NodePace,
    PeerConfig,
    RaftSettings,
)
from samelog.config.values import Address
from samelog.consensus import Entry, Role, Snapshot
from samelog.format.errors import LogFormatError
from samelog.sequencer.cluster.members import NotAMember
from samelog.sequencer.cluster.node_dir import NodeDirectoryError, NodePlace, NodeRecord
from samelog.sequencer.host import Host, NodeResources
from samelog.sequencer.node import Node
from samelog.sequencer.raft.group import Applier
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.serving import serve_node
from samelog.sequencer.state.commands import decode_commands
from samelog.store.disk.disk_errors import DiskFault
from tests.cluster_sim.actor import CLUSTER, NO_FILES, PORT, Actor
from tests.cluster_sim.checked import SimJudge
from tests.cluster_sim.copier import URL, SimCopier
from tests.cluster_sim.group_checker import record_groups
from tests.cluster_sim.inode import Inode
from tests.cluster_sim.new_kind import OLD_BUILD, check_known
from tests.cluster_sim.process import Process, ProcessDied
from tests.cluster_sim.shared_connections import SlowChecker
from tests.cluster_sim.syncer import SimSyncer
from tests.cluster_sim.violation import Violation
from tests.keys.memory import FileKeys

if TYPE_CHECKING:
    from tests.cluster_sim.transactions import Services
    from tests.cluster_sim.world import World

DATA = "/data"
BOOTSTRAPPED = re.compile("without --bootstrap|can join their cluster")
ARCHIVE_EVERY_S = 0.5
ELECTION_MS = 400
SESSION_MEMORY_BYTES = 16 << 10
"""Small, so that files are read as well as memory."""
MOST_OPEN = 6
"""Files that the logs of a node keep open: so few that most of them are closed again and again."""
"""Below what a configuration begins with: more happens in a world's time."""
GRANTS = (
    Grant(
        identity="samelog://publisher/*",
        publish_sessions=("s*", "w*"),
        publish_topics=("*",),
        mirror=("*",),
    ),
    Grant(identity="samelog://subscriber/*", subscribe_topics=("*",)),
)


T = TypeVar("T")


class _Usage:
    """How full a simulated disk is."""

    def __init__(self, actor: Actor) -> None:
        self.used = actor.disk.used_bytes
        self.free = max(0, actor.disk.capacity_bytes - actor.disk.used_bytes)


class _NoWatch:
    """Certificates never change here."""

    def close(self) -> None:
        """Nothing to let go of."""


class Recorder:
    """Sees what a node applies before anybody can act on it. Implements group.Applier."""

    def __init__(self, actor: NodeActor, applier: Applier) -> None:
        self._actor = actor
        self._applier = applier
        self._build = actor.build

    @property
    def level(self) -> int:
        return self._applier.level

    def apply(self, entry: Entry) -> list[Any]:
        world = self._actor.world
        check_known(entry.data, self._build)
        world.judge(world.checker.applying, self._actor, entry)
        node = self._actor.node
        try:
            outcomes = self._applier.apply(entry)
        except ProcessDied:
            if node is not None:
                state = node.raft.replica.machine.state
                world.judge(world.checker.died_applying, self._actor, entry, state)
            raise
        world.judge(world.checker.applied, self._actor, entry, outcomes)
        if world.options.forgets and node is not None and entry.data:
            world.forgetting.applied(node.cluster, decode_commands(entry.data))
        return outcomes

    def install(self, snapshot: Snapshot) -> None:
        self._actor.world.trace.event(self._actor.host, f"installs {snapshot.last_index}")
        self._applier.install(snapshot)

    def role_changed(self) -> None:
        self._applier.role_changed()


async def _at_once(work: Callable[..., T], /, *arguments: Any) -> T:
    return work(*arguments)


class NodeActor(Actor):
    """One voter, by its number."""

    def __init__(self, world: World, number: int, host: str = "") -> None:
        super().__init__(world, host or f"n{number}")
        self.number = number
        self.name = f"n{number}"
        self.node: Node | None = None
        self.forgot = False
        """Whether its disk was ever wiped, or put back to an older state."""
        self.is_condemned = False
        """Whether it counts for nothing, until it is let in again: what it has lost, a majority of
        the others has.
        """
        self.has_rotten = False
        """Whether bytes of its disk were changed, so that it may ask for an operator."""
        self.bootstraps = True
        self.build = OLD_BUILD
        """The newest feature level of the program that is installed."""
        self.services: Services | None = None
        """What Kafka's producers use, once one has."""
        self.power_losses = 0
        self.groups_looked_at: dict[int, int] = {}
        """Data group -> the applied index at which its state was compared last."""
        self._has_lost_power = False
        self.disk.on_cut = self._cuts

    @property
    def identity(self) -> str:
        return f"samelog://node/{self.name}"

    def look(self) -> None:
        node = self.node
        if node is None:
            return
        raft = node.raft.group.raft
        now = (
            self.disk.changes,
            self.starts,
            len(node.logs.merging.partitions),
            raft.role,
            raft.term,
            len(node.raft.coordinator._planner.damaged),
        )
        if node.raft.group.halted:
            raise Violation("one history", f"{self.host} is halted: {node.raft.group.halted}")
        record, state = node.member.directory.record, node.logs.machine.state
        if self.is_condemned and not self.has_rotten:
            known = state.members.started.get(record.number)
            is_out = known is None or known.let_in != record.incarnation
            self.is_condemned = is_out or self.world.data_groups.is_suspect(self)
        self.world.data_groups.look(self, node)
        if now != self.looked_when:
            self.looked_when = now
            self.world.checker.look_at_node(self, node)

    @property
    def is_leader(self) -> bool:
        """Whether it believes to lead."""
        return (
            self.is_up and self.node is not None and self.node.raft.group.raft.role is Role.LEADER
        )

    @property
    def waits_for_its_operator(self) -> bool:
        """Whether it takes nothing in, or has halted a partition, because of its disk: until it is
        started again.
        """
        if not self.is_up or self.node is None:
            return False
        groups = [self.node.logs, *(logs for logs, _, _ in self.node.data_groups.held)]
        partitions = chain.from_iterable(logs.merging.partitions.values() for logs in groups)
        halted = [partition.log.path for partition in partitions if partition.fault is not None]
        failed = self.disk.failed  # of a new partition, the sync of the directory that it is in
        has_halted = any(
            path.startswith(f"{name}/") or path == os.path.dirname(name)
            for path in failed
            for name in halted
        )
        return has_halted or any(logs.intake.stopped for logs in groups)

    @property
    def counts(self) -> bool:
        """Whether it does when it is heard of next: who has not met its cluster yet is a suspect
        there.
        """
        inode = self.disk.find(f"{DATA}/node.json")
        if self.is_condemned or not isinstance(inode, Inode):
            return False
        record = msgspec.json.decode(bytes(inode.data), type=NodeRecord)
        return record.may_vote and record.cluster_id != ""

    def config(self) -> NodeConfig:
        """As an operator writes it."""
        options = self.world.options
        return NodeConfig(
            name=self.name,
            cluster=CLUSTER,
            data=DATA,
            listen=Address(self.host, PORT),
            advertise=Address(self.host, PORT),
            tls=NO_FILES,
            peers=self._peers(),
            grants=GRANTS,
            auto_create_topics=False,
            fsync=Fsync.INTERVAL if options.lazy_sync else Fsync.ALWAYS,
            segment_bytes=options.segment_bytes,
            pace=NodePace(snapshot_interval_s=options.snapshot_interval_s),
            raft=RaftSettings(election_ms=ELECTION_MS),
            archive=ArchiveConfig(interval_s=ARCHIVE_EVERY_S, copy_to=URL),
            limits=ConnectionLimits(session_memory_bytes=SESSION_MEMORY_BYTES),
        )

    def _peers(self) -> tuple[PeerConfig, ...]:
        """Those that the cluster was made from; where members change, it may be any list. An
        operator who gives a node an empty disk when none of the former is left lists the present
        ones.
        """
        options = self.world.options
        names = [f"n{number}" for number in range(options.nodes)]
        present = [node.name for node in self.world.nodes]
        draw = random.Random(f"peers {self.host} {self.starts} {options.seed}")
        if options.changes and self.disk.find(f"{DATA}/node.json") is not None:
            names = draw.choice((names, present, [self.name], names[::-1]))
        elif options.changes and not {*names} & {*present} - {self.name}:
            names = present
        hosts = names[::-1] if options.changes and draw.random() < 0.2 else names
        if self.disk.find(f"{DATA}/node.json") is None:
            hosts = names
        pairs = zip(names, hosts, strict=True)
        return tuple(PeerConfig(name=name, address=Address(host, PORT)) for name, host in pairs)

    async def run(self, process: Process) -> None:
        fs, seed = self.file_system(process, most_open=MOST_OPEN), self.world.options.seed
        host = Host(
            new_syncer=lambda directory: SimSyncer(fs),
            watch=lambda paths, on_change: _NoWatch(),
            disk_usage=lambda path: _Usage(self),
            in_thread=_at_once,
            boot=lambda: f"{self.host} {self.power_losses}",
            new_copier=lambda: SimCopier(self.world, fs, process),
            open_keys=FileKeys,
            new_judge=lambda: SimJudge(random.Random(f"judge {process.name} {seed}")),
        )
        rng = random.Random(f"{process.name} {self.world.options.seed}")
        tls = cast(Any, self.tls())
        given = NodeResources(self.config(), fs, self.clock, tls, rng, host, self.build)
        bootstrap, self.bootstraps = self.bootstraps, False

        def make(place: NodePlace | None) -> Node:
            node = Node(given, bootstrap=bootstrap, place=place)
            node.raft.group._applier = Recorder(self, node.raft.group._applier)
            node.raft.group._send = partial(self._sends, node.raft.group._send)
            if self.world.checker.groups.are_followed:
                record_groups(self, node)
            if self.world.options.has_defaults:
                self.world.data_groups.listen(node)
            if self.world.options.shares:
                node.logs.intake.checker = SlowChecker(rng)
            self.node = node
            self.world.judge(self.world.checker.node_opened, self)
            return node

        await serve_node(
            given.config,
            make,
            asyncio.Event(),
            fs=fs,
            tls=tls,
            bootstrap=bootstrap,
            on_started=lambda node, port: self.world.checker.node_started(self),
        )

    # --- fsync = interval -------------------------------------------------------------------------

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may have lost what it had acknowledged, and has not caught up."""
        node = self.node
        if node is not None and self.is_up:
            self._has_lost_power = node.member.directory.record.doubtful
        return self._has_lost_power

    def _may_lose_power(self) -> bool:
        """Never so many at a time that nobody can be sure of having all."""
        others = [node for node in self.world.nodes if node is not self]
        in_doubt = sum(node.is_in_doubt for node in others)
        return in_doubt < (len(self.world.nodes) - 1) // 2

    def kill(self, *, power: bool = False, why: str = "is killed") -> None:
        if not self.world.options.lazy_sync or not self.is_up:
            super().kill(power=power, why=why)
            return
        power = power and self._may_lose_power()
        self._has_lost_power = power or self.is_in_doubt
        self.power_losses += power
        super().kill(power=power, why=why)

    def failed(self, error: Exception) -> None:
        self.world.trace.event(self.host, f"fails: {type(error).__name__}: {error}")
        if isinstance(error, DiskFault) and self.disk.is_lossy:
            return
        if isinstance(error, DiskFault) and self.disk.used_bytes >= self.disk.capacity_bytes // 2:
            return
        if isinstance(error, NodeDirectoryError) and BOOTSTRAPPED.search(str(error)):
            return  # its operator takes the flag away
        if isinstance(error, NotAMember) and self.world.membership.was_removed(self):
            return
        refusals = (RaftStoreError, NodeDirectoryError, LogFormatError)
        if isinstance(error, refusals) and self.has_rotten:
            self.world.operator_wipes(self)
            return
        raise Violation("nodes live", f"{self.host} ended: {error!r}") from error

    def gone(self) -> None:
        self.node = self.services = None

    def _sends(self, send: Callable[[int, Any], None], to: int, messages: Any) -> None:
        for message in messages:
            self.world.checker.node_says(self, to, message)
        send(to, messages)

    def _cuts(self, path: str, inode: Inode, size: int) -> None:
        self.world.judge(self.world.checker.node_cuts, self, path, inode, size)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.kill(power=True)
        self.disk.wipe()
        self.forgot = self.is_condemned = True
        self.has_rotten = False
        self.world.trace.event(self.host, "has an empty disk")
