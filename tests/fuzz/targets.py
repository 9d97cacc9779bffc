"""The targets: what is fed to which parser, which errors it may answer with, what must hold then.

Invariant: the seeds of a target are valid input; a target forgets everything between two inputs.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from samelog.config.load import load_client, load_node
from samelog.config.values import ConfigError
from samelog.consensus import CorruptRecord, HistoryConflict, InvariantError, MalformedMessage
from samelog.consensus.messages import GroupMessages, decode_groups, encode_groups
from samelog.consensus.snapshot_file import StoredSnapshot, decode_snapshot, encode_snapshot
from samelog.consensus.types import FileOwner
from samelog.consensus.wal import LogReplay, scan_wal
from samelog.format import _kernels as kernels
from samelog.format.compression import Codec, compress, decompress
from samelog.format.errors import LogFormatError
from samelog.format.file_names import SESSION_MARKS_FILE
from samelog.format.names import check_session_name, check_topic_name
from samelog.runtime.network._tls import ReceiveBuffer
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.raft.replica import SnapshotBody, read_body
from samelog.sequencer.state.commands import CommandError, decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.wire.errors import FrameError, ProtocolFault
from samelog.wire.frames import Frame, FrameType, encode_data_header, encode_frame
from samelog.wire.messages import decode_message, encode_message
from tests.fuzz import examples, kafka_targets
from tests.store.storage import open_input, open_merged
from tests.wire.frame_decoder import FrameDecoder

UNPACKED_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, and valid input for it."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


# --- from the network ----------------------------------------------------------------------------


def frames(data: bytes) -> None:
    """Both decoders cut the same frames, however the bytes arrive, and stop at the same fault."""
    plain = FrameDecoder()
    plain.feed(data)
    buffer = ReceiveBuffer()
    for start in range(0, len(data), 7):
        piece = data[start : start + 7]
        buffer.room(len(piece))[: len(piece)] = piece
        buffer.stop += len(piece)
    while True:
        expected = _next(plain)
        found = _next(buffer)
        if expected is None or isinstance(expected, str) or isinstance(found, str):
            assert found == expected
            return
        assert found == expected


def _next(decoder: FrameDecoder | ReceiveBuffer) -> Frame | str | None:
    try:
        frame = decoder.next()
    except FrameError as error:
        return str(error)
    if frame is None or isinstance(frame, Frame):
        return frame
    kind, channel, payload = frame
    return Frame(kind, bytes(payload), channel)


def wire_messages(data: bytes) -> None:
    """A message comes back as the same message."""
    with contextlib.suppress(ProtocolFault):
        message = decode_message(data)
        assert decode_message(encode_message(message)) == message


def raft_payload() -> bytes:
    """What one group has to say."""
    messages: Any = examples.raft_messages()
    return encode_groups([GroupMessages(0, 0, 0, messages)])


def raft_messages(data: bytes) -> None:
    """Whatever a member says is handled, or ends the process by a broken invariant."""
    with contextlib.suppress(MalformedMessage, HistoryConflict, InvariantError):
        group = examples.led_group()
        for part in decode_groups(data):
            for message in part.messages:
                group[1].step(0, message, group.now)
                group[0].step(1, message, group.now)


def batches(data: bytes) -> None:
    """Scanning, decoding, slicing and stamping agree on what is a batch."""
    scan = kernels.scan(data, max_batch_bytes=UNPACKED_LIMIT_BYTES)
    assert 0 <= scan.end <= len(data)
    whole = bytearray(data[: scan.end])
    headers = kernels.batch_headers(whole, 0, len(whole))
    assert (len(headers), sum(header[2] for header in headers)) == (scan.batches, scan.records)
    with contextlib.suppress(LogFormatError):
        records = kernels.decode_records(whole, 0, len(whole), "t", 0, _unpack)
        columns = kernels.decode_columns(whole, 0, len(whole), _unpack)
        assert columns.rows == len(records) <= scan.records
    with contextlib.suppress(LogFormatError, ValueError):
        if headers:
            first = bytes(whole[: headers[0][1]])
            sliced = kernels.slice_batch(first, 1, _unpack)
            assert kernels.scan(sliced).records == headers[0][2] - 1
    with contextlib.suppress(LogFormatError, ValueError):
        left = kernels.leave_out(whole, [0, 1], _unpack)
        assert kernels.scan(left, max_batch_bytes=UNPACKED_LIMIT_BYTES).records == scan.records - 1
    with contextlib.suppress(LogFormatError):
        kernels.keys_of(whole, 0, len(whole), _unpack)
    kernels.stamp_append_time(whole, 7)
    assert kernels.scan(whole, max_batch_bytes=UNPACKED_LIMIT_BYTES).end == len(whole)


def _unpack(codec: int, blob: bytes) -> bytes:
    return decompress(codec, blob, limit_bytes=UNPACKED_LIMIT_BYTES)


def codecs(data: bytes) -> None:
    """Nothing unpacks to more than the limit."""
    if data:
        with contextlib.suppress(LogFormatError):
            assert len(_unpack(data[0] % 5, data[1:])) <= UNPACKED_LIMIT_BYTES


# --- from the node's own files -------------------------------------------------------------------


def wal(data: bytes) -> None:
    """A damaged write-ahead log is a scan or a typed error."""
    with contextlib.suppress(CorruptRecord, LogFormatError):
        scan = scan_wal(data)
        assert scan.end <= len(data)
        replay = LogReplay()
        replay.begin_file(1)
        for piece in scan.pieces:
            replay.add(piece, 1)
            replay.add_hole("damaged")
        replay.end()


def snapshot(data: bytes) -> None:
    """So is a damaged snapshot, and what is in it."""
    with contextlib.suppress(CorruptRecord, LogFormatError, OtherVersion):
        stored = decode_snapshot(data)
        read_body(stored.snapshot.data)


def commands(data: bytes) -> None:
    """Commands that can be read are applied, rejected, or break an invariant."""
    with contextlib.suppress(CommandError, InvariantError):
        machine = examples.machine()
        for command in decode_commands(data):
            machine.apply(command)
        StateMachine.decode(machine.encode())


def session_files(data: bytes) -> None:
    """A damaged session directory opens, or says why not; opening it twice gives the same."""
    with _damaged(examples.input_directory(), data) as directory:
        ends = []
        for _ in range(2):
            with contextlib.suppress(LogFormatError):
                log = open_input(directory)
                ends.append([log.end(run) for run in log.runs()])
                log.close()
        assert not ends or ends[0] == ends[-1]


def merged_files(data: bytes) -> None:
    """A damaged partition opens, or says why not."""
    with _damaged(examples.merged_directory(), data) as directory:
        for read_only in (True, False):
            with contextlib.suppress(LogFormatError):
                log = open_merged(directory, read_only=read_only)
                segment, size = log.end()
                assert len(log.read(segment, 0, size)) == size  # verified by who reads them
                log.close()


@contextlib.contextmanager
def _damaged(source: Path, data: bytes) -> Iterator[Path]:
    """A copy of a directory, with the marks beside it; the first byte chooses the file that the
    other bytes replace.
    """
    with tempfile.TemporaryDirectory() as parent:
        directory, marks = Path(parent) / source.name, Path(parent) / SESSION_MARKS_FILE
        shutil.copytree(source, directory)
        if (source.parent / marks.name).exists():
            shutil.copy(source.parent / marks.name, marks)
        files = sorted([*directory.iterdir(), *Path(parent).glob(marks.name)])
        files[(data[0] if data else 0) % len(files)].write_bytes(data[1:])
        yield directory


def configuration(data: bytes) -> None:
    """A configuration is read, or one message says what is wrong with it."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        for load in (load_node, load_client):
            with contextlib.suppress(ConfigError):
                load(file.name)


def names(data: bytes) -> None:
    """A name that is accepted can be a directory's name."""
    text = data.decode("utf-8", "surrogateescape")
    for check in (check_session_name, check_topic_name):
        with contextlib.suppress(LogFormatError):
            accepted = check(text)
            assert accepted not in ("", ".", "..")
            assert "/" not in accepted
            assert "\0" not in accepted
            assert len(accepted.encode()) < 250


def _snapshot_seed() -> bytes:
    body = msgspec.msgpack.encode(SnapshotBody(examples.machine().encode(), []))
    return encode_snapshot(StoredSnapshot(FileOwner("c", 0, 1, 0), examples.raft_snapshot(body)))


def _files(directory: Path) -> list[bytes]:
    paths = sorted(directory.iterdir())
    return [bytes([number]) + path.read_bytes() for number, path in enumerate(paths)]


def make_targets() -> dict[str, Target]:
    """All targets by name."""
    whole = examples.batches()
    wire = [encode_message(message) for message in examples.wire_messages()]
    framed = [encode_frame(FrameType.CONTROL, payload) for payload in wire]
    framed.append(encode_data_header(1, 0, 0, len(whole[0])) + whole[0])
    packed = [bytes([codec]) + compress(codec, b"samelog " * 50) for codec in Codec]
    return {
        "frames": Target(frames, [*framed, b"".join(framed)]),
        "wire-messages": Target(wire_messages, wire),
        "raft-messages": Target(raft_messages, [raft_payload()]),
        "batches": Target(batches, [*whole, b"".join(whole)]),
        "codecs": Target(codecs, packed),
        "wal": Target(wal, [examples.wal_file()]),
        "snapshot": Target(snapshot, [_snapshot_seed()]),
        "commands": Target(commands, [encode_commands(examples.commands())]),
        "session-files": Target(session_files, _files(examples.input_directory())),
        "merged-files": Target(merged_files, _files(examples.merged_directory())),
        "configuration": Target(configuration, examples.configurations()),
        "kafka-frames": Target(kafka_targets.frames, kafka_targets.frame_seeds()),
        "kafka-requests": Target(kafka_targets.requests, list(kafka_targets.request_seeds())),
        "kafka-batches": Target(kafka_targets.batches, kafka_targets.batch_seeds()),
        "kafka-authentication": Target(
            kafka_targets.authentication, kafka_targets.authentication_seeds()
        ),
        "kafka-group-metadata": Target(
            kafka_targets.group_metadata, kafka_targets.group_metadata_seeds()
        ),
        "names": Target(names, [b"flights", b"a.b-c_9", "\u00e9".encode()]),
    }
