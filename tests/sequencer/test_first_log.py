"""A log of the first version is carried over into the shared one, whenever the process dies or the
power fails on the way; and a program of that version finds its whole log, or refuses.
"""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from samelog.consensus import Entry, HardState
from samelog.format._kernels import crc32c
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.store import RaftStore
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process, ProcessDied

STATE = struct.pack(">QIQ", 3, 1, 5)


def first_version(sequence: int, bodies: list[tuple[int, bytes]]) -> bytes:
    """A file as the first version wrote it."""
    fixed = struct.pack(">8sHHIIIQQ", b"SAMERAFT", 1, 1, 0, 2, 0, sequence, 1) + b"c"
    salt, chain = crc32c(fixed), 0
    data = fixed + salt.to_bytes(4)
    for kind, body in bodies:
        rest = struct.pack(">BI", kind, len(data)) + body
        length = len(rest).to_bytes(4)
        chain = crc32c(rest, crc32c(length, chain ^ salt))
        data += length + chain.to_bytes(4) + rest
    return data


def entry_body(index: int) -> tuple[int, bytes]:
    return 1, struct.pack(">QQ", index, 2) + b"entry %d" % index


FILES = {
    f"/raft/0/wal.{4:020d}": first_version(4, [(2, STATE), *map(entry_body, range(3, 9))]),
    f"/raft/0/wal.{5:020d}": first_version(5, [(2, STATE), *map(entry_body, range(9, 12))]),
}
ENTRIES = [Entry(index, 2, b"entry %d" % index) for index in range(3, 12)]


def machine(seed: str, contents: dict[str, bytes]) -> tuple[Disk, SimFileSystem]:
    """A disk with these files, synced."""
    disk = Disk(seed)
    fs = SimFileSystem(disk, Process("n", "n"))
    for directory in ("/raft", "/raft/0"):
        fs.make_directory(directory)
    for path, data in contents.items():
        fs.write_atomically(path, data)
    return disk, fs


def open_log(fs: SimFileSystem) -> MemberLog:
    return MemberLog.open(cast(Any, fs), "/raft", cluster="c", node=2)


def dies_while_opening(disk: Disk, process: Process, after: int) -> bool:
    """Whether so many effects are less than all."""

    def die() -> None:
        process.is_alive = False

    process.fuse, process.on_fuse = after, die
    try:
        open_log(SimFileSystem(disk, process))
    except ProcessDied:
        return True
    return False


def check_older_program(fs: SimFileSystem) -> None:
    """All of its log is there, or a file that it refuses."""
    names = [f"/raft/0/{name}" for name in fs.list_directory("/raft/0") if name[-1].isdigit()]
    contents = {name: fs.read_file(name, 1 << 20) for name in names}
    is_refused = any(data[8:10] != b"\0\1" and len(data) > 44 for data in contents.values())
    assert is_refused or contents == FILES


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_log_is_carried_over_whenever_the_process_dies(power_fails: bool) -> None:
    after = 1
    while True:
        disk, fs = machine(f"dies {after}", FILES)
        died = dies_while_opening(disk, Process("n", "n"), after)
        if power_fails:
            disk.lose_power()
        check_older_program(fs)
        for _ in range(2):
            kept = open_log(fs).group((0, 0))
            assert (kept.base, kept.entries, kept.hard_state) == (2, ENTRIES, HardState(3, 1, 5))
        check_older_program(fs)
        assert len([name for name in fs.list_directory("/raft/0") if "wal." in name]) == 1
        if not died:
            break
        after += 1
    assert after > 5


def test_a_new_directory_is_refused_by_an_older_program() -> None:
    _, fs = machine("new", {})
    open_log(fs)
    (name,) = fs.list_directory("/raft/0")
    data = fs.read_file(f"/raft/0/{name}", 1 << 20)
    assert (name, data[:10], len(data) > 44) == (f"wal.{1:020d}", b"SAMERAFT\0\2", True)


def test_damage_stops_the_start_and_changes_nothing() -> None:
    path, data = next(iter(FILES.items()))
    rotten = bytearray(data)
    rotten[100] ^= 1
    _, fs = machine("rot", {**FILES, path: bytes(rotten)})
    with pytest.raises(RaftStoreError, match=rf"{path} is damaged"):
        open_log(fs)
    assert fs.read_file(path, 1 << 20) == rotten
    assert fs.list_directory("/raft") == ["0"]


def test_the_log_goes_on_behind_what_was_carried_over() -> None:
    disk, fs = machine("goes on", FILES)
    log = open_log(fs)
    log.write(log.group((0, 0)), [Entry(12, 3, b"new")])
    log.write(log.group((1, 0)), [Entry(1, 3, b"another group")])
    log.sync()
    disk.lose_power()
    again = open_log(fs)
    assert again.group((0, 0)).entries == [*ENTRIES, Entry(12, 3, b"new")]
    assert again.group((1, 0)).entries == [Entry(1, 3, b"another group")]
    with pytest.raises(RaftStoreError, match="entry 1 is lost"):  # there is no snapshot
        RaftStore.open(cast(Any, fs), again)
