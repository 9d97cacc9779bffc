"""Planted bugs about what is on disk when something is promised, and what is left after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.consensus import Effects, HardState
from samelog.consensus.wal import WalScan, scan_wal
from samelog.format.positions import SessionPosition
from samelog.replicator.push import release as push_release
from samelog.sequencer.cluster.node_dir import HostBoot, NodeDirectory
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.ingest.session_rounds import SessionRounds
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import SessionStore, SyncedEnds
from samelog.sequencer.raft import member_log
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.disk.batch_walk import ValidExtent
from samelog.store.disk.dirty_files import DirtyFiles
from samelog.store.disk.files import DiskFault, File
from samelog.store.session.log import InputLog
from samelog.store.session.recovery import RunRecovery
from samelog.store.session.run import HeldRun
from tests.cluster_sim.files import SimFileSystem


@contextmanager
def saved_before_sync() -> Iterator[None]:
    """Raft is told that its log is durable as soon as it is written."""

    def queue(self: RaftGroup, effects: Effects) -> None:
        self.raft.saved(effects.token)
        self._send_all(effects.send_after_save)

    with patch.object(RaftGroup, "_queue_save", queue):
        yield


@contextmanager
def forgive_failed_syncs() -> Iterator[None]:
    """Who waits for a sync that fails for another one finds nothing to sync, and goes on."""
    asked: dict[RaftGroup, object] = {}

    original = RaftGroup._sync

    async def sync(self: RaftGroup, saves: Sequence[tuple[Effects, bool]]) -> None:
        _, mark = self._store.log.unsynced()
        if asked.get(self) != mark:
            asked[self] = mark
            await original(self, saves)

    with patch.object(RaftGroup, "_sync", sync):
        yield


@contextmanager
def forget_votes() -> Iterator[None]:
    """The vote is not written."""
    original = RaftStore.write

    def write(self: RaftStore, effects: Effects) -> None:
        state = effects.hard_state
        if state is not None:
            forgetful = HardState(state.term, None, state.commit)
            effects = msgspec.structs.replace(effects, hard_state=forgetful)
        original(self, effects)

    with patch.object(RaftStore, "write", write):
        yield


@contextmanager
def roll_without_sync() -> Iterator[None]:
    """The end of a full log file is not synced when the next one begins."""

    def roll(self: MemberLog) -> None:
        self._file.seal()
        self._file.file.close()
        self._start_file()

    with patch.object(MemberLog, "roll", roll):
        yield


@contextmanager
def cut_damage() -> Iterator[None]:
    """A damaged record of the Raft log is cut off like a torn one, with all behind it."""

    def scan(data: bytes) -> WalScan:
        found = scan_wal(data)
        if found.corrupt is None:
            return found
        return WalScan(found.header, found.pieces[:1], found.end, True, None, found.chain)

    with patch.object(member_log, "scan_wal", scan):
        yield


@contextmanager
def snapshot_before_sync() -> Iterator[None]:
    """A snapshot does not wait for the merged bytes that it implies."""
    original = Snapshotter.take

    async def take(self: Snapshotter) -> int:
        merging = self._replica.merging

        async def nothing() -> None:
            await asyncio.sleep(0)

        with patch.object(merging, "sync", nothing):
            return await original(self)

    with patch.object(Snapshotter, "take", take):
        yield


@contextmanager
def report_written() -> Iterator[None]:
    """Nodes vouch for what they have written, durable or not, and leaders plan from it."""

    def durable(self: SessionStore, entry: Input) -> SessionPosition:
        return self.written(entry)

    with patch.object(SessionStore, "durable", durable):
        yield


@contextmanager
def ignore_failed_session_syncs() -> Iterator[None]:
    """What a failed sync of session logs was to cover counts as durable."""
    original = SessionRounds.sync

    async def sync(self: SessionRounds, numbers: Iterable[int], also: Sequence[File] = ()) -> None:
        if also:
            await original(self, numbers, also)
            return
        taken = frozenset(numbers)
        self.dirty -= taken
        ends, files = self._sessions.ends(taken), self._sessions.take_dirty(taken)[0]
        with suppress(DiskFault):
            await self._syncer.sync(files)
        self._sessions.mark_durable(ends, files)
        if self._on_synced is not None:
            self._on_synced(ends)

    with patch.object(SessionRounds, "sync", sync):
        yield


@contextmanager
def mark_what_came_meanwhile() -> Iterator[None]:
    """A sync marks as durable what was written while it was under way."""
    original = SessionStore.mark_durable

    def mark(self: SessionStore, ends: SyncedEnds, files: Iterable[File] = ()) -> None:
        original(self, self.ends(ends), files)

    with patch.object(SessionStore, "mark_durable", mark):
        yield


@contextmanager
def save_without_bytes() -> Iterator[None]:
    """An entry counts as saved when it is durable, whatever of the bytes that it names is."""
    with patch.object(EntryBytes, "_not_durable", lambda self, entries: set()):
        yield


@contextmanager
def take_entries_unbacked() -> Iterator[None]:
    """Followers take entries of the leader whether they have the bytes or not."""
    with patch.object(EntryBytes, "is_backed", lambda self, entry: True):
        yield


@contextmanager
def names_are_not_synced() -> Iterator[None]:
    """Files are synced, the directories that name them are not."""
    with patch.object(DirtyFiles, "touch_directory", lambda self: None):
        yield


@contextmanager
def merged_before_sync() -> Iterator[None]:
    """What is merged counts as durable at once."""

    def merged_durable(self: Merging, numbers: Iterable[int]) -> dict[int, int]:
        return {number: entry.log.next_offset for number, entry in self.partitions.items()}

    with patch.object(Merging, "merged_durable", merged_durable):
        yield


@contextmanager
def trust_torn_tails() -> Iterator[None]:
    """A session file is taken as it is found, up to its last byte."""

    def take_up_tail(
        self: RunRecovery, run: HeldRun, roll: int, names: Any, file: File, size: int
    ) -> bool:
        return self._cut(run, roll, names, file, ValidExtent(size, -1, 0, None))

    with patch.object(RunRecovery, "_take_up_tail", take_up_tail):
        yield


@contextmanager
def trust_gaps() -> Iterator[None]:
    """Where a run's first files are missing, they count as released."""
    with patch.object(SessionStore, "set_gaps_aside", lambda self: None):
        yield


@contextmanager
def release_all_at_once() -> Iterator[None]:
    """Nothing keeps the order in which released files vanish."""
    original = InputLog._remove_file

    def remove(self: InputLog, run: HeldRun, roll: int, *, for_good: bool = False) -> None:
        original(self, run, roll)

    with patch.object(InputLog, "_remove_file", remove):
        yield


@contextmanager
def remove_merged_files_at_once() -> Iterator[None]:
    """A publisher removes a file that is merged to its end, though a node may not know its end."""

    def first_kept(session: Any, progress: Any, run: int, name: Any) -> int:
        tail = session.tail(run, name)
        return int(min(tail.rolls[-1], tail.normal(progress.merged(run, name))[0]))

    with patch.object(push_release, "_first_kept", first_kept):
        yield


@contextmanager
def wiped_nodes_vote() -> Iterator[None]:
    """A node that lost its directory votes and counts, as if it had promised nothing."""
    original = NodeDirectory.open

    def open_(cls: Any, *args: Any, **options: Any) -> NodeDirectory:
        directory: NodeDirectory = original(*args, **options)
        directory.record = msgspec.structs.replace(directory.record, suspicion="")
        return directory

    with patch.object(NodeDirectory, "open", classmethod(open_)):
        yield


@contextmanager
def count_before_let_in() -> Iterator[None]:
    """A suspect counts again once it knows what its leader has committed, let in or not."""
    with patch.object(OwnLife, "_is_let_in", lambda self: True):
        yield


@contextmanager
def copies_count() -> Iterator[None]:
    """A node that runs on an old copy of its directory votes and counts."""
    same = staticmethod(lambda fs, path, record: record)
    with patch.object(NodeDirectory, "_compared", same):
        yield


@contextmanager
def snapshots_are_not_synced() -> Iterator[None]:
    """A leader's snapshot is renamed into place before it is on disk."""
    original = SimFileSystem.write_atomically

    def write_atomically(self: SimFileSystem, path: str, data: bytes, **options: Any) -> None:
        durable = options.get("durable", True) and "snapshot." not in path
        original(self, path, data, durable=durable)

    with patch.object(SimFileSystem, "write_atomically", write_atomically):
        yield


@contextmanager
def forget_unclean_ends() -> Iterator[None]:
    """With fsync=interval, a node does not notice that its host went down under it."""
    original = NodeDirectory._begin_life

    def begin(fs: Any, config: Any, record: Any, host: HostBoot, incarnation: str) -> Any:
        return original(fs, config, record, msgspec.structs.replace(host, boot=""), incarnation)

    with patch.object(NodeDirectory, "_begin_life", staticmethod(begin)):
        yield


DURABILITY = (
    saved_before_sync,
    forgive_failed_syncs,
    forget_votes,
    roll_without_sync,
    cut_damage,
    snapshot_before_sync,
    report_written,
    ignore_failed_session_syncs,
    mark_what_came_meanwhile,
    save_without_bytes,
    take_entries_unbacked,
    names_are_not_synced,
    merged_before_sync,
    trust_torn_tails,
    trust_gaps,
    release_all_at_once,
    remove_merged_files_at_once,
    wiped_nodes_vote,
    count_before_let_in,
    copies_count,
    snapshots_are_not_synced,
    forget_unclean_ends,
)
