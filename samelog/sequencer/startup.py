"""How a node begins: it takes its data directory, then becomes Live.

First it takes part in Raft and takes data in, then it knows what was committed, then it has
executed that; what it still lacks of history comes last.

Invariant: positions are stated to others only once this node has applied what was committed before
it started (rule raft.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from samelog.admin.answers import NodeState
from samelog.archiver.policy_file import PolicyFile
from samelog.archiver.shares import LogShares
from samelog.config.authorisation import Rights
from samelog.replicator.pull.acknowledger import Budget
from samelog.runtime.idle import IdleMemory
from samelog.sequencer.cluster.lives import HasForgotten
from samelog.sequencer.cluster.node_dir import NodeDirectory, NodePlace, check_has_log
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.cluster.scrubber import ScrubPace
from samelog.sequencer.connections import Connections
from samelog.sequencer.filtering.pieces import RowFilters
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.host import NodeResources, Service
from samelog.sequencer.ingest.quotas import NodeQuotas
from samelog.sequencer.measures import Measures
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.parts import MemberParts, MemberStatus, RaftParts
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_home import home_of, raft_path
from samelog.sequencer.state.tables.members import NodeStarted
from samelog.store.disk.tail_memory import TailMemory

RETRY_S = 0.1
LOOK_S = 0.05


def open_member(given: NodeResources, place: NodePlace | None, *, bootstrap: bool) -> MemberParts:
    """Take the data directory, and make what a member of the cluster has once. `place`: see Node.
    Raises NodeDirectoryError, RaftStoreError.
    """
    config, clock, measures = given.config, given.clock, Measures(given.clock)
    check_has_log(given.fs, config.data, home_of(config))
    directory = NodeDirectory.open(
        given.fs,
        config,
        place,
        bootstrap=bootstrap,
        wall_s=clock.wall_ms() // 1000,
        chance=given.rng,
        host_boot=given.host.boot(),
    )
    path, number = raft_path(config), directory.record.number
    log = MemberLog.open(given.fs, path, cluster=config.cluster, node=number)
    connections, rights = Connections(measures), Rights(config.grants, ())
    made = config, clock, directory, log, rights, measures, connections
    policy = PolicyFile(given.fs, config.archive.policy)
    share = config.place.share
    shares = LogShares(config.place.members_on_host)
    kept = RowFilters(), policy, shares, given.host.new_judge()
    paces = Budget(config.pace.recovery_bytes_per_s), ScrubPace(config.scrub)
    memory = IdleMemory(
        clock.now(),
        tails=TailMemory(share(config.limits.tail_bytes)),
        sessions=TailMemory(share(config.limits.session_memory_bytes), copies_large=False),
    )
    shared = *paces, NodeQuotas(config.quotas, share), memory
    return MemberParts(*made, MemberStatus(), *kept, *shared)


async def come_up(
    member: MemberParts,
    group_replica: GroupReplica,
    life: OwnLife,
    services: Sequence[Service],
) -> None:
    """Become Live: applied and executed up to what was committed when the node started, and, as a
    voter, with a vote that counts; in a new cluster, once that has its members and its id. Raises
    HasForgotten if the cluster knows another life of it.
    """
    member.status.state = NodeState.SYNCING
    raft, logs = group_replica.raft, group_replica.logs
    # A look now and then is all these waits need: nobody is told when they end.
    while (index := await raft.group.read_index()) is None:  # noqa: ASYNC110
        await asyncio.sleep(RETRY_S)
    await raft.replica.wait_applied(index)
    if (found := life.contradiction()) is not None:
        raise HasForgotten(found)
    life.settle()
    raft.replica.forget_deleted()
    logs.sessions.set_gaps_aside()
    partitions = logs.machine.state.partitions.by_number
    wanted = {number: partition.next_offset for number, partition in partitions.items()}
    group_replica.reporter.state_all()
    for service in services:
        await service.start()
    while not _executed(logs.merging, wanted):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    await _record_life(member, raft)
    while not member.directory.record.cluster_id:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    while member.directory.record.number in raft.group.raft.voters and not life.is_sure:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    member.status.state = NodeState.LIVE


def _executed(merging: Merging, wanted: Mapping[int, int]) -> bool:
    return all(
        number not in merging.partitions or merging.partitions[number].log.next_offset >= offset
        for number, offset in wanted.items()
    )


async def _record_life(member: MemberParts, raft: RaftParts) -> None:
    """Let the cluster remember this life, however long there may be no leader."""
    record = member.directory.record
    name, level = member.config.name, raft.upgrade.supported
    host = member.config.place.host or name
    command = NodeStarted(name, record.boot, record.number, record.incarnation, level, host)
    while True:
        try:
            await raft.proposer.propose(command)
        except TimeoutError:
            continue
        return
