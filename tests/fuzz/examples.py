"""Valid input to begin from: messages, files and directories as the system itself writes them.

Invariant: made once, and only read afterwards.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.schema.render import to_toml
from samelog.consensus import Entry, HardState, Snapshot
from samelog.consensus.messages import Append, Heartbeat, PreVote, RaftMessage, SnapshotChunk
from samelog.consensus.wal import Base, Cut, SnapshotMark, WalEncoder, WalHeader, WalRecord
from samelog.format import _kernels as kernels
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Merge, MergeExtras, Range, Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import LetIn, NodeStarted
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenInputCommand,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.wire import messages as wire
from samelog.wire.bounds import Ack, RunEnd
from samelog.wire.peer_messages import InputPosition, Report
from tests.consensus.group import Group
from tests.store import storage

_kept: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="samelog-fuzz-")
    _kept.append(folder)
    return Path(folder.name)


def batches() -> list[bytes]:
    """Batches with keys, headers, nulls and producer ids."""
    plain = kernels.build_batches(
        [b"one", None, b"x" * 300],
        keys=[b"k", b"", None],
        headers=[[("h", b"v")], None, [("", None)]],
        timestamps=[5, 3, 9],
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
    )
    numbered = kernels.build_batches(
        [b"%d" % number for number in range(9)],
        timestamps=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=3,
        batch_bytes=200,
        max_record_bytes=1 << 20,
    )
    return [plain, numbered, kernels.build_record(b"")]


def wire_messages() -> list[wire.AnyMessage]:
    """One of many kinds."""
    return [
        wire.Hello(role=wire.ConnectionRole.PUSH, cluster="c"),
        wire.OpenSession(1, "s", "i"),
        wire.Ping(),
        wire.OpenRun(3, "run", "twin", 1 << 40),
        wire.OpenInput(1, "flights", 0, "run"),
        wire.EndRun("run", (RunEnd("flights", 0, 1, 99),)),
        wire.Acks((Ack(1, 1, 0, 5, 0, 4, 0, 3),)),
        wire.Reaches((0, 2)),
        wire.RollSealed(1, 0, 500),
        wire.OpenMerged(2, "flights", None, 0, wire.Start.EARLIEST),
        Report(1, (InputPosition(1, 0, 0, 9),), (), ()),
    ]


def led_group() -> Group:
    """Three members with some history, led by the first."""
    group = Group(3)
    group.elect(0)
    group.propose(0, b"a", b"b", b"c")
    return group


def raft_messages() -> list[RaftMessage]:
    """What members say to each other."""
    return [
        Append(1, 0, 4, 1, (Entry(5, 1, b"x" * 20),), 4),
        Heartbeat(1, 4, 1, 0),
        PreVote(2, 4, 1),
        SnapshotChunk(1, 9, 1, (0, 1, 2), (), 0, 4, b"part"),
    ]


def raft_snapshot(data: bytes) -> Snapshot:
    """A snapshot of three members."""
    return Snapshot(9, 2, (0, 1, 2), (), data)


def wal_file() -> bytes:
    """A log with entries, hard states and a snapshot's mark, synced in between."""
    encoder = WalEncoder(WalHeader("c", 1, 3))
    data = encoder.header_bytes
    for before, first in ((0, 10), (3, 12), (6, 14)):
        records: list[WalRecord] = [
            Entry(first, 2, b"x" * 30),
            Entry(first + 1, 2, b""),
            HardState(2, 1, first),
        ]
        data += encoder.encode((7, 2), before, records, synced=len(data))
    rest: list[WalRecord] = [SnapshotMark(12, 2), Base(11), Cut(15)]
    data += encoder.encode((7, 2), 9, rest, synced=len(data))
    return data + encoder.encode((7, 2), 12, [Entry(14, 2, b"")], synced=0, moved=True)


def commands() -> list[AnyCommand]:
    """A life of a topic and a session."""
    part = Range(1, 0, 0, 0, 100, 3, 100, 12345)
    return [
        CreateTopicCommand("t", "flights", 2, {"segment.bytes": "65536"}, 5),
        OpenRunCommand("s", "dir", "samelog://publisher/s", 0, "run", "twin", 1),
        OpenInputCommand("s", "t", 0),
        Merge(
            1,
            0,
            1,
            9,
            False,
            [part],
            [Sequence5(7, 0, 0, 2, 0)],
            [("twin", 2)],
            [(1, 2)],
            MergeExtras(stamp=True),
        ),
        CloseRun("s", "run"),
        NodeStarted("rt-sequencer-0", 2, 0, "life", 1),
        LetIn(0, "life"),
        RetireSessionCommand("s"),
        DeleteTopicCommand("t"),
    ]


def machine() -> StateMachine:
    """The state after all but the last of them."""
    machine = StateMachine()
    for command in commands()[:-2]:
        machine.apply(command)
    return machine


@cache
def input_directory() -> Path:
    """A session log of two runs, one file sealed, marked durable in part."""
    path = _folder() / "inputs" / "input"
    log = storage.open_input(path)
    one, two = storage.batch(1), storage.batch(2, records=5)
    log.append(0, 0, 0, one)
    log.seal(0, 0, len(one))
    log.append(0, 1, 0, two)
    log.settle()
    storage.save_marks(log)
    log.append(1, 0, 0, one + two)
    log.close()
    return path


@cache
def merged_directory() -> Path:
    """A merged partition of two segments."""
    path = _folder() / "merged"
    log = storage.open_merged(path)
    for seed in range(6):
        if seed == 3:
            log.roll()
        data = bytearray(storage.batch(seed, records=3, size=2000))
        log.append(data, base_offset=log.next_offset, leader_epoch=1)
    for file in log.take_dirty():
        file.datasync()
    log.mark_durable(log.next_offset)
    log.save_marks()
    log.close()
    return path


@cache
def configurations() -> list[bytes]:
    """What a local cluster is configured with."""
    cluster = LocalCluster(str(_folder() / "cluster"), ClusterOptions(nodes=3))
    cluster.prepare()
    node = Path(cluster.nodes[0].config_file).read_bytes()
    return [node, to_toml(cluster.client_config()).encode()]
