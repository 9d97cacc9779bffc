"""What the golden directories say, read by the product's own code, as lines of text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from samelog.sequencer.cluster.node_dir import read_record
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.replica import SnapshotBody
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.session.directory import SessionDirectory
from samelog.store.session.log import InputLog

FS = OsFileSystem()


def facts(directory: Path) -> Iterator[str]:
    """Everything below the directory of golden files; what is opened may be written to."""
    node = directory / "node"
    record = read_record(FS, str(node))
    yield f"node.json: {record}"
    yield from raft_facts(node, record.cluster, record.number)
    for path in sorted((node / "merged").iterdir()):
        yield from merged_facts(path)
    for session in ("golden", "late"):
        yield from session_facts(node / "sessions" / session)
    yield from session_facts(directory / "publisher" / "golden")


def raft_facts(node: Path, cluster: str, number: int) -> Iterator[str]:
    """The log, the hard state, the snapshot and the state in it."""
    log = MemberLog.open(FS, str(node / "raft"), cluster=cluster, node=number)
    store = RaftStore.open(FS, log)
    yield f"hard state: {store.hard_state}"
    for entry in store.entries:
        yield f"entry {entry.index} of term {entry.term}: {decode_commands(entry.data)}"
    if store.snapshot is not None:
        body = msgspec.msgpack.decode(store.snapshot.data, type=SnapshotBody)
        yield f"snapshot: {msgspec.structs.replace(store.snapshot, data=b'')}"
        state = StateMachine.decode(body.state).state
        for name in field_values(body.state):
            yield f"state, {name}: {getattr(state, name)!r}"
        yield f"pending: {body.pending}"
    log.close()


def field_values(state: bytes) -> dict[str, bytes]:
    """What was written of a state, by field: later versions have more fields."""
    found = msgspec.msgpack.decode(state, type=dict[str, msgspec.Raw])
    return {name: bytes(value) for name, value in found.items()}


def merged_facts(path: Path) -> Iterator[str]:
    """One merged log, segment by segment."""
    topic, _, partition = path.name.rpartition("-")
    log = MergedLog.open(FS, path, topic=topic, topic_id=f"{topic}-topic", partition=int(partition))
    yield f"{path.name}: offsets {log.start_offset} to {log.next_offset}, end {log.end()}"
    for segment in log.segments():
        data = log.read(segment.base_offset, 0, segment.size) if segment.size else b""
        digest = hashlib.sha256(data).hexdigest()
        yield f"{path.name}: segment {segment.base_offset}: {segment.size} bytes, {digest}"
    log.close()


def session_facts(path: Path) -> Iterator[str]:
    """One session's directory."""
    directory = SessionDirectory.open(FS, path)
    yield f"{path.name}: {directory.record}"
    for run in directory.runs():
        yield f"{path.name}: {run}"
    for topic, partition in directory.inputs():
        log = InputLog.open(FS, directory.input_path(topic, partition))
        for number in range(2):
            yield f"{topic}-{partition}: run {number} from {log.start(number)} to {log.end(number)}"
        log.close()
    directory.close()
