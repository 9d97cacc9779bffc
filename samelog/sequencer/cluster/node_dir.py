"""A node's data directory: whose it is, which boot this is, and whether the node may vote.

`node.json` names the cluster, the node and its boot counter, raised durably at every start, so that
a copy of the directory put back later is recognised (invariants.md, rule 13). A directory is made
once, by an explicit bootstrap, with the right to vote; one that appears empty without it belongs to
a node that lost its memory, and may not vote.

Invariant: two processes never use one directory; a directory of another cluster, node or newer
format is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from samelog.config.tables.node import VOTER_COUNTS, Fsync, NodeConfig
from samelog.format.errors import DirectoryInUse
from samelog.format.numbers import Unsigned32
from samelog.sequencer.cluster.members import members_of
from samelog.sequencer.state.commands import Member
from samelog.store.disk.files import DiskFault, File, FileSystem

FORMAT_VERSION = 1
FILE_LIMIT_BYTES = 1 << 16
PASSED_OVER = ("node.lock", "lost+found")
"""What an empty directory may hold: the own lock, and what ext4 puts where it is mounted."""


class NodeDirectoryError(Exception):
    """The data directory cannot be this node's; an operator has to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """A node's place in its cluster: its number, and who else is there.

    `is_fresh`: no node has ever started under this number.
    """

    cluster: str
    node: str
    number: int
    members: Sequence[Member]
    members_version: int = 0
    is_fresh: bool = False


class NodeRecord(msgspec.Struct, frozen=True):
    """The contents of node.json."""

    format_version: int
    cluster: str
    node: str
    boot: int
    may_vote: bool
    number: Unsigned32
    """The node's number in the cluster."""
    members: list[Member] = []
    """Who belonged to the cluster when the directory was made."""
    members_version: int = 0
    """Which version of the member list that was."""
    voters: list[int] = []
    """Of a bootstrapped directory: who voted then. Raft's log and snapshots go on from there."""
    at_risk: str = ""
    """The host's boot in which the node runs without syncing what it acknowledges
    (`fsync=interval`); empty while it does not, and after a clean stop.
    """
    doubtful: bool = False
    """Such a host has gone down since: acknowledged entries may be missing here."""


class NodeDirectory:
    """The open data directory of a running node."""

    def __init__(self, fs: FileSystem, path: str, record: NodeRecord, lock: File) -> None:
        self.path = path
        self.record = record
        self._fs = fs
        self._lock = lock

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        config: NodeConfig,
        place: NodePlace | None = None,
        *,
        bootstrap: bool,
        wall_s: int,
        host_boot: str = "",
    ) -> NodeDirectory:
        """Lock the directory and begin a new boot. Raises NodeDirectoryError.

        `place` is what a new directory is made for; None: a cluster made from the configuration.
        Nothing is asked of either once there is a directory. One that is not bootstrapped may vote
        only if nobody has ever heard of its number: then nothing was promised under it.

        A new directory's boots are counted from the time of day: so they are later than those of
        any directory that this node had and lost, and an old copy's are not.

        `host_boot` identifies the host's present boot.
        """
        path = config.data
        fs.make_directory(path)
        lock = _lock(fs, os.path.join(path, "node.lock"))
        try:
            if fs.exists(os.path.join(path, "node.json")):
                known = read_record(fs, path)
                _check(known, config)
                record = msgspec.structs.replace(known, boot=known.boot + 1)
            else:
                _check_is_empty(fs, path)
                record = _first_record(place or place_in(config), wall_s, bootstrap=bootstrap)
            record = cls._begin_boot(fs, config, record, host_boot)
        except BaseException:
            lock.close()
            raise
        return cls(fs, path, record, lock)

    @staticmethod
    def _begin_boot(
        fs: FileSystem, config: NodeConfig, record: NodeRecord, host_boot: str
    ) -> NodeRecord:
        """What is on disk before the boot begins."""
        is_lost = record.at_risk not in ("", host_boot)
        record = msgspec.structs.replace(
            record,
            at_risk=host_boot if config.fsync is Fsync.INTERVAL else "",
            doubtful=record.doubtful or is_lost,
        )
        write_record(fs, config.data, record)
        return record

    def check_is_there(self) -> None:
        """Raises NodeDirectoryError if it was moved, removed or unmounted, or its disk is gone:
        whatever is written from now on would be somewhere else.
        """
        try:
            is_there = self._fs.exists(os.path.join(self.path, "node.json"))
        except DiskFault as fault:
            raise NodeDirectoryError(f"the data directory cannot be read: {fault}") from fault
        if not is_there:
            text = f"the data directory {self.path} is not there any more: moved, or unmounted?"
            raise NodeDirectoryError(f"{text} The node ends; bring it back, and start it again")

    def stopped_cleanly(self) -> None:
        """All that was acknowledged is on the disk, and nothing more will be."""
        if self.record.at_risk:
            self._rewrite(at_risk="")

    def is_whole_again(self) -> None:
        """The node holds all that was ever committed."""
        self._rewrite(doubtful=False)

    def _rewrite(self, **changes: object) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        write_record(self._fs, self.path, self.record)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()


def place_in(config: NodeConfig) -> NodePlace:
    """A node's place in a cluster made from its configuration. Raises NodeDirectoryError."""
    names = [peer.name for peer in config.peers]
    if config.name not in names:
        raise NodeDirectoryError(
            f"{config.name} is not among the peers {', '.join(names)}: it can join their cluster, "
            "but not begin one"
        )
    if len(names) not in VOTER_COUNTS:
        counts = "1, 3, 5 or 7"
        raise NodeDirectoryError(f"{len(names)} peers: a new cluster has {counts} voters")
    return NodePlace(
        cluster=config.cluster,
        node=config.name,
        number=names.index(config.name),
        members=members_of(config.peers),
    )


def _first_record(place: NodePlace, wall_s: int, *, bootstrap: bool) -> NodeRecord:
    voters = [member.number for member in place.members if member.voter]
    return NodeRecord(
        FORMAT_VERSION,
        place.cluster,
        place.node,
        max(1, wall_s),
        may_vote=bootstrap or place.is_fresh,
        number=place.number,
        members=list(place.members),
        members_version=place.members_version,
        voters=voters if bootstrap else [],
    )


def _check_is_empty(fs: FileSystem, path: str) -> None:
    others = [name for name in fs.list_directory(path) if name not in PASSED_OVER]
    if others:
        raise NodeDirectoryError(
            f"{path} holds {others[0]!r} but no node.json: not a node's directory; "
            "choose an empty one, or restore node.json"
        )


def _lock(fs: FileSystem, path: str) -> File:
    try:
        return fs.lock(path)
    except DirectoryInUse as error:
        raise NodeDirectoryError(f"another running node uses this directory: {error}") from error


def write_record(fs: FileSystem, path: str, record: NodeRecord) -> None:
    """Replace node.json, durably."""
    fs.write_atomically(os.path.join(path, "node.json"), msgspec.json.encode(record))


def read_record(fs: FileSystem, path: str) -> NodeRecord:
    """The node.json of a directory. Raises NodeDirectoryError."""
    file = os.path.join(path, "node.json")
    data = fs.read_file(file, FILE_LIMIT_BYTES)
    try:
        version = msgspec.json.decode(data, type=dict).get("format_version")
        if version != FORMAT_VERSION:
            raise NodeDirectoryError(
                f"{file}: format version {version}; this program reads {FORMAT_VERSION}: "
                "use the program that wrote it, or a newer one"
            )
        return msgspec.json.decode(data, type=NodeRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NodeDirectoryError(f"{file} is unreadable ({error}): restore it") from error


def _check(known: NodeRecord, config: NodeConfig) -> None:
    path = config.data
    if known.cluster != config.cluster:
        raise NodeDirectoryError(
            f"{path} belongs to cluster {known.cluster!r}, the configuration says "
            f"{config.cluster!r}"
        )
    if known.node != config.name:
        raise NodeDirectoryError(
            f"{path} belongs to node {known.node!r}, the configuration says {config.name!r}"
        )
