"""Data and frames of another day mean today what they meant then, to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from samelog.consensus import encode_groups
from samelog.consensus.snapshot_file import decode_snapshot, encode_snapshot
from samelog.consensus.wal import scan_wal
from samelog.format.directory_files import (
    PartitionFile,
    RunFile,
    SessionFile,
    TopicFile,
    Versioned,
    decode_directory_file,
    encode_directory_file,
)
from samelog.sequencer.raft.replica import SnapshotBody
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.wire.frames import (
    HEADER_BYTES,
    FrameType,
    decode_channel,
    encode_data_header,
    encode_frame,
)
from samelog.wire.messages import encode_message
from tests.golden.facts import facts
from tests.golden.frames import describe, meaning, read, split

HERE = Path(__file__).parent
EXCHANGES = ("push", "pull", "raft")
KINDS: dict[str, type[Versioned]] = {
    "partition.json": PartitionFile,
    "run.*.json": RunFile,
    "session.json": SessionFile,
    "topic.json": TopicFile,
}


@pytest.fixture(name="golden")
def copied(tmp_path: Path) -> Path:
    """The golden directories, to be opened."""
    for name in ("node", "publisher"):
        shutil.copytree(HERE / name, tmp_path / name)
    return tmp_path


def files(directory: Path) -> dict[str, bytes]:
    """Every file, but for the locks."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def test_golden_directories_say_what_they_said(golden: Path) -> None:
    assert list(facts(golden)) == (HERE / "facts.txt").read_text().splitlines()


def test_opening_golden_directories_changes_nothing(golden: Path) -> None:
    before = files(golden)
    assert list(facts(golden))
    assert files(golden) == before


def test_golden_raft_files_are_written_as_they_were() -> None:
    directory = HERE / "node" / "raft"
    for path in (*directory.glob("wal.*"), *directory.glob("0/snapshot.*")):
        data = path.read_bytes()
        if path.name.startswith("snapshot"):
            stored = decode_snapshot(data)
            assert encode_snapshot(stored) == data
            body = msgspec.msgpack.decode(stored.snapshot.data, type=SnapshotBody)
            assert StateMachine.decode(body.state).encode() == body.state
            assert msgspec.msgpack.encode(body) == stored.snapshot.data
        else:
            scan = scan_wal(data)
            assert scan.records
            assert (scan.torn, scan.corrupt) == (False, None)


def test_golden_commands_are_written_as_they_were(golden: Path) -> None:
    for path in (HERE / "node" / "raft").glob("wal.*"):
        for record in scan_wal(path.read_bytes()).records:
            data = getattr(record, "data", b"")
            if data and data[0] != 0xC1:  # a configuration holds more than commands
                assert encode_commands(decode_commands(data)) == data


@pytest.mark.parametrize("pattern", KINDS)
def test_golden_directory_files_are_written_as_they_were(pattern: str) -> None:
    found = list(HERE.rglob(pattern))
    assert found
    for path in found:
        data = path.read_bytes()
        assert encode_directory_file(decode_directory_file(data, str(path), KINDS[pattern])) == data


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_golden_frames_mean_what_they_meant(exchange: str) -> None:
    frames = list(read((HERE / f"{exchange}.txt").read_text()))
    assert len(frames) >= 5
    for frame, meant in frames:
        assert meaning(frame) == meant, describe("", frame)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_golden_frames_are_written_as_they_were(exchange: str) -> None:
    for frame, _ in read((HERE / f"{exchange}.txt").read_text()):
        kind, value = split(frame)
        if kind is FrameType.CONTROL:
            assert encode_message(value)[HEADER_BYTES:] == frame[HEADER_BYTES:]
            assert encode_message(value, decode_channel(frame)) == frame
        elif kind is FrameType.RAFT:
            assert encode_frame(kind, encode_groups(value)) == frame
        else:
            (handle, file, byte), batches = value
            place = handle, file, byte, len(batches), decode_channel(frame)
            assert encode_data_header(*place) + batches == frame
