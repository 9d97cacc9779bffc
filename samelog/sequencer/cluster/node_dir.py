"""A node's data directory: whose it is, which life of the node this is, and whether it is sure to
have forgotten nothing.

`node.json` names the cluster, the node, its boot counter, and the random id of this life with those
before it, all durable before the node says anything. It also names `node.id`, a file that was made
once, by its place and time of birth: a directory in which that is another file is a copy, and the
node suspect. So is one that did not bootstrap its directory: it may have had another one
(rules raft.1 and raft.7).

Invariant: two processes never use one directory; a directory of another cluster, node or newer
format is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import msgspec

from samelog.config.tables.node import VOTER_COUNTS, Fsync, NodeConfig
from samelog.format.checked_json import encode_checked
from samelog.format.errors import DirectoryInUse
from samelog.format.numbers import Unsigned32
from samelog.sequencer.cluster.lives import Contradiction
from samelog.sequencer.cluster.members import members_of
from samelog.sequencer.raft import raft_home
from samelog.sequencer.state.tables.members import Member
from samelog.store.disk.birth import Birth
from samelog.store.disk.directories import make_durable_directory
from samelog.store.disk.files import DiskFault, File, FileSystem
from samelog.store.disk.json_files import checked_text
from samelog.wire.bounds import LIVES_TOLD

FORMAT_VERSION = 2
FILE_LIMIT_BYTES = 1 << 16
PASSED_OVER = (
    *("node.lock", "node.id", "node.id.tmp", "node.json.tmp", "lost+found"),
    *raft_home.MARK_NAMES,
)
"""What an empty directory may hold: what was begun, and what ext4 puts where it is mounted."""
NOT_LET_IN = "it is new here, and was not let in yet"
IS_A_COPY = "its directory is a copy of the one that it ran on"


class NodeDirectoryError(Exception):
    """The data directory cannot be this node's; an operator has to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """A node's place in its cluster: its number, and who else is there. `cluster_id` is empty where
    the cluster is yet to begin.
    """

    cluster: str
    node: str
    number: int
    members: Sequence[Member]
    members_version: int = 0
    cluster_id: str = ""


class DirectoryMark(NamedTuple):
    """What `node.id` held, and what file it was."""

    directory_id: str
    birth: Birth


class HostBoot(msgspec.Struct, frozen=True):
    """The boot of the host in which a life of a node began."""

    boot: str = ""
    """Empty: not known."""
    is_at_risk: bool = False
    """The node does not sync what it acknowledges (`fsync=interval`), and has not stopped cleanly.
    """
    lost_writes: bool = False
    """A sync failed: bytes that were written and not durable may be gone, as after a power failure.
    """
    is_uncompared: bool = False
    """Written bytes were lost before this life, and it has yet to compare its logs with the bytes
    that they name.
    """


class Suspicions(NamedTuple):
    """How often a reason was found that a directory may have forgotten something."""

    times: int = 0
    sure_after: int | None = None
    """The version of the placement table after which no other directory of the member can have had
    a replica, as known since the newest suspicion; None: not known yet.
    """


class NodeRecord(msgspec.Struct, frozen=True):
    """The contents of node.json."""

    format_version: int
    cluster: str
    node: str
    boot: int
    number: Unsigned32
    """The node's number in the cluster."""
    incarnation: str = ""
    """The random id of this life."""
    predecessors: list[str] = []
    """Those of the lives before it, the newest last."""
    made: DirectoryMark = DirectoryMark("", Birth(0, 0, 0))
    cluster_id: str = ""
    """Empty until the first committed entry is applied."""
    suspicion: str = ""
    """Why the node may have forgotten something, and counts for nothing; empty: it has not."""
    suspicions: Suspicions = Suspicions()
    members: list[Member] = []
    """Who belonged to the cluster when the directory was made."""
    members_version: int = 0
    """Which version of the member list that was."""
    voters: list[int] = []
    """Of a bootstrapped directory: who voted then. Raft's log and snapshots go on from there."""
    host: HostBoot = HostBoot()
    """Of the newest life."""
    doubtful: bool = False
    """A host went down while the node was at risk: acknowledged entries may be missing here."""

    @property
    def may_vote(self) -> bool:
        """Whether what it promised under its number is known here."""
        return not self.suspicion

    def suspected(self, reason: str) -> NodeRecord:
        """The record of a node that may have forgotten something."""
        counted = Suspicions(self.suspicions.times + 1)
        return msgspec.structs.replace(self, suspicion=reason, suspicions=counted)

    def after(self, incarnation: str) -> list[str]:
        """The lives before a new one, `incarnation` being the newest of them."""
        return [*self.predecessors, incarnation][-LIVES_TOLD:] if incarnation else self.predecessors


class SiteRecord(msgspec.Struct, frozen=True):
    """The contents of sites.json: what a node keeps of other sites."""

    far: dict[str, list[Member]] = {}
    """Those that have members, as known here: one of them may be promoted while this node is away.
    """
    superseded: str = ""
    """The cluster's id since a site was promoted without this node, which takes part no more;
    empty: none was.
    """


class NodeDirectory:
    """The open data directory of a running node."""

    def __init__(
        self,
        fs: FileSystem,
        config: NodeConfig,
        record: NodeRecord,
        locks: Sequence[File],
        *,
        lost_power: bool,
    ) -> None:
        """`lost_power`: whether bytes that the last life wrote and did not sync may be gone: the
        host was started, or is another one, or a sync failed.
        """
        self.path = path = config.data
        self.record = record
        self.lost_power = lost_power
        self._confirmed_at: int | None = None
        """The version of the placement table that this life has confirmed."""
        self._fs = fs
        self._config = config
        self._locks = locks
        self.far = read_sites(fs, path).far
        """Other sites that have members, as they were noted last."""

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        config: NodeConfig,
        place: NodePlace | None = None,
        *,
        bootstrap: bool,
        wall_s: int,
        chance: Random,
        host_boot: str = "",
    ) -> NodeDirectory:
        """Lock the directory and begin a new life. Raises NodeDirectoryError, and RaftStoreError if
        Raft's files are not where they are looked for.

        `place` is what a new directory is made for; None: a cluster made from the configuration.
        Nothing is asked of either once there is a directory.

        A new directory's boots are counted from the time of day: so they are later than those of
        any directory that this node had and lost, and an old copy's are not.

        `host_boot` identifies the host's present boot.
        """
        path = config.data
        make_durable_directory(fs, path)
        locks = [_lock(fs, os.path.join(path, "node.lock"))]
        try:
            if fs.exists(os.path.join(path, "node.json")):
                known = read_record(fs, path)
                _check(known, config)
                check_not_superseded(fs, path)
                locks += _given(_raft_home(fs, config, known))
                record = msgspec.structs.replace(known, boot=known.boot + 1)
                record = cls._compared(fs, path, record)
                if doubt := raft_home.why_doubted(fs, config, known.incarnation):
                    record = record.suspected(record.suspicion or doubt)
            else:
                _check_is_empty(fs, path)
                record = _first_record(place or place_in(config), wall_s, bootstrap=bootstrap)
                _write_id(fs, path, _random_id(chance))
                record = known_by_birth(fs, path, record)
                locks += _given(raft_home.make_home(fs, config, record.made.directory_id))
            is_same_boot = host_boot and record.host.boot == host_boot
            has_lost = record.host.lost_writes or record.host.is_uncompared
            lost_power = not is_same_boot or has_lost
            is_at_risk = config.fsync is Fsync.INTERVAL
            host = HostBoot(host_boot, is_at_risk, is_uncompared=lost_power)
            record = cls._begin_life(fs, config, record, host, _random_id(chance))
        except BaseException:
            _close(locks)
            raise
        return cls(fs, config, record, locks, lost_power=lost_power)

    @staticmethod
    def _compared(fs: FileSystem, path: str, record: NodeRecord) -> NodeRecord:
        """The record of a suspect if this is not the directory that it was written in."""
        if not fs.exists(os.path.join(path, "node.id")):
            _write_id(fs, path, record.made.directory_id)
        found = known_by_birth(fs, path, record)
        if found == record:
            return record
        return found.suspected(record.suspicion or IS_A_COPY)

    @staticmethod
    def _begin_life(
        fs: FileSystem, config: NodeConfig, record: NodeRecord, host: HostBoot, incarnation: str
    ) -> NodeRecord:
        """What is on disk before the node says anything."""
        has_lost = record.host.lost_writes or record.host.boot not in ("", host.boot)
        is_lost = record.host.is_at_risk and has_lost
        before = record.incarnation
        record = msgspec.structs.replace(
            record,
            host=host,
            doubtful=record.doubtful or is_lost,
            incarnation=incarnation,
            predecessors=record.after(record.incarnation),
        )
        raft_home.begin_life(fs, config, incarnation, before)
        write_record(fs, config.data, record)
        return record

    def check_is_there(self) -> None:
        """Raises NodeDirectoryError if it was moved, removed or unmounted, or its disk is gone:
        whatever is written from now on would be somewhere else.
        """
        try:
            is_there = self._fs.exists(os.path.join(self.path, "node.json"))
            has_raft = raft_home.is_there(self._fs, self._config)
        except DiskFault as fault:
            raise NodeDirectoryError(f"the data directory cannot be read: {fault}") from fault
        if not (is_there and has_raft):
            gone = self._config.place.raft_dir if is_there else self.path
            text = f"the data directory {gone} is not there any more: moved, or unmounted?"
            raise NodeDirectoryError(f"{text} The node ends; bring it back, and start it again")

    def stopped_cleanly(self) -> None:
        """All that was acknowledged is on the disk, and nothing more will be."""
        if self.record.host.is_at_risk:
            self._rewrite(host=msgspec.structs.replace(self.record.host, is_at_risk=False))

    def has_lost_writes(self) -> None:
        """A sync failed: written bytes may be gone once this life ends. Raises DiskFault."""
        if not self.record.host.lost_writes:
            self._rewrite(host=msgspec.structs.replace(self.record.host, lost_writes=True))

    def has_compared_bytes(self) -> None:
        """This life has cut entries off whose bytes were lost before it: damage that the next life
        finds is not of that loss. Raises DiskFault.
        """
        if self.record.host.is_uncompared:
            self._rewrite(host=msgspec.structs.replace(self.record.host, is_uncompared=False))

    def is_whole_again(self) -> None:
        """The node holds all that was ever committed."""
        self._rewrite(doubtful=False)

    def is_suspect(self, reason: str) -> None:
        """This life may have forgotten something."""
        self.record = self.record.suspected(reason)
        write_record(self._fs, self.path, self.record)

    def is_let_in(self, let_in_at: int | None = None) -> None:
        """Nothing that this life may have forgotten counts any more. `let_in_at`: the version of
        the placement table at the entry that names this life; None if all voters agreed instead.
        """
        self._rewrite(suspicion="")
        self._keep_sure_after(self._confirmed_at if let_in_at is None else let_in_at)

    def has_confirmed(self, version: int) -> None:
        """This life has applied the placement table up to a version as new as group 0's was when
        the life began.
        """
        self._confirmed_at = version
        self._keep_sure_after(version)

    def _keep_sure_after(self, version: int | None) -> None:
        """Another directory of the member cannot have had a replica that is newer than `version`:
        if it starts, this directory becomes suspect again.
        """
        record, known = self.record, self.record.suspicions
        if known.times and record.may_vote and known.sure_after is None and version is not None:
            self._rewrite(suspicions=known._replace(sure_after=version))

    def belongs_to(self, cluster_id: str) -> None:
        """The cluster has begun."""
        self._rewrite(cluster_id=cluster_id)

    def knows_far(self, far: dict[str, list[Member]]) -> None:
        """Who is in other sites."""
        if far != self.far:
            self.far = far
            write_sites(self._fs, self.path, SiteRecord(far))

    def _rewrite(self, **changes: object) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        write_record(self._fs, self.path, self.record)

    def close(self) -> None:
        """Release the locks."""
        _close(self._locks)


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
        place.number,
        cluster_id=place.cluster_id,
        suspicion="" if bootstrap else NOT_LET_IN,
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


def _random_id(chance: Random) -> str:
    return f"{chance.getrandbits(64):016x}"


def _write_id(fs: FileSystem, path: str, directory_id: str) -> None:
    fs.write_atomically(os.path.join(path, "node.id"), directory_id.encode())


def known_by_birth(fs: FileSystem, path: str, record: NodeRecord) -> NodeRecord:
    """The record with what `node.id` holds, and is."""
    file = os.path.join(path, "node.id")
    held = fs.read_file(file, FILE_LIMIT_BYTES).decode("ascii", "replace")
    return msgspec.structs.replace(record, made=DirectoryMark(held, fs.birth(file)))


def suspect(fs: FileSystem, path: str, found: Contradiction) -> None:
    """Make a stopped node's directory one of a node that has forgotten something: its next life
    follows the one that the others know.
    """
    record = read_record(fs, path)
    known = found.known
    write_record(
        fs,
        path,
        msgspec.structs.replace(
            record.suspected(found.reason),
            boot=max(record.boot, known.boot),
            predecessors=record.after(known.incarnation),
        ),
    )


def _raft_home(fs: FileSystem, config: NodeConfig, known: NodeRecord) -> File | None:
    return raft_home.take_home(fs, config, known.made.directory_id)


def _given(lock: File | None) -> list[File]:
    return [] if lock is None else [lock]


def _close(locks: Sequence[File]) -> None:
    for lock in locks:
        lock.close()


def _lock(fs: FileSystem, path: str) -> File:
    try:
        return fs.lock(path)
    except DirectoryInUse as error:
        raise NodeDirectoryError(f"another running node uses this directory: {error}") from error


def check_usable(fs: FileSystem, config: NodeConfig) -> None:
    """Say what is wrong with a directory before anything is opened on account of it. Raises as
    `NodeDirectory.open`.
    """
    path = config.data
    make_durable_directory(fs, path)
    lock = _lock(fs, os.path.join(path, "node.lock"))
    try:
        if fs.exists(os.path.join(path, "node.json")):
            _check(record := read_record(fs, path), config)
            check_not_superseded(fs, path)
            raft_home.check_home(fs, config, record.made.directory_id)
            check_has_log(fs, path, raft_home.home_of(config))
        else:
            _check_is_empty(fs, path)
    finally:
        lock.close()


def check_has_log(fs: FileSystem, path: str, home: str = "") -> None:
    """Raises NodeDirectoryError if the log of Raft is gone from a directory that had one: with an
    empty one the node would give its promises a second time. `home`: where `raft` is, or here.
    """
    if not fs.exists(os.path.join(path, "node.json")):
        return
    if not _has_log(fs, home or path) and _had_log(fs, path, read_record(fs, path)):
        raise NodeDirectoryError(
            f"{path} has no Raft log any more (raft/wal.*), and this node has had one. Nothing was "
            "changed. Remedy: put the directory raft back (if a recovery was interrupted, it is "
            f"the newest set-aside.raft.*). Or keep a copy of {path}, and start the node with an "
            "empty directory, without --bootstrap: it is filled from its peers"
        )


def _has_log(fs: FileSystem, path: str) -> bool:
    """Of this format, or of the first one."""
    places = os.path.join(path, "raft"), os.path.join(path, "raft", "0")
    names = (name for each in places if fs.exists(each) for name in fs.list_directory(each))
    return any(name.startswith("wal.") and name[4:].isdigit() for name in names)


def _had_log(fs: FileSystem, path: str, record: NodeRecord) -> bool:
    """Whether more was begun here than the directory: a first start makes the log before all else.
    Who has bootstrapped knows the cluster's id from the log; who has joined was let in by it. Who
    counts for nothing has promised nothing, as one that was given a new number.
    """
    more = any(fs.exists(os.path.join(path, name)) for name in ("merged", "sessions", "groups"))
    begun = more or bool(record.cluster_id) or not record.voters
    return record.may_vote and begun


def write_record(fs: FileSystem, path: str, record: NodeRecord) -> None:
    """Replace node.json, durably."""
    fs.write_atomically(os.path.join(path, "node.json"), encode_checked(record))


def read_record(fs: FileSystem, path: str) -> NodeRecord:
    """The node.json of a directory. Raises NodeDirectoryError."""
    file = os.path.join(path, "node.json")
    data = fs.read_file(file, FILE_LIMIT_BYTES)
    damage: ValueError | None = None
    try:
        data = checked_text(file, data)
    except ValueError as error:  # another version may have other checksums, or none
        damage = error
    try:
        version = msgspec.json.decode(data, type=dict).get("format_version")
        if version != FORMAT_VERSION:
            raise NodeDirectoryError(
                f"{file}: format version {version}; this program reads {FORMAT_VERSION}: "
                "use the program that wrote it, or a newer one"
            )
        if damage is not None:
            raise damage
        return msgspec.json.decode(data, type=NodeRecord)
    except ValueError as error:
        raise NodeDirectoryError(f"{file} is unreadable ({error}): restore it") from error


def check_not_superseded(fs: FileSystem, path: str) -> None:
    """Raises NodeDirectoryError if a site was promoted without the node."""
    since = read_sites(fs, path).superseded
    if since:
        raise NodeDirectoryError(
            f"a site was promoted without this node, and the cluster is {since} now: what "
            f"{path} holds beyond that counts no more. Keep the directory, and start the node "
            "with an empty one, after: samelog node add"
        )


def read_sites(fs: FileSystem, path: str) -> SiteRecord:
    """The sites.json of a directory, if there is one. Raises NodeDirectoryError."""
    file = os.path.join(path, "sites.json")
    if not fs.exists(file):
        return SiteRecord()
    data = fs.read_file(file, FILE_LIMIT_BYTES)
    try:
        return msgspec.json.decode(checked_text(file, data), type=SiteRecord)
    except ValueError as error:
        raise NodeDirectoryError(f"{file} is unreadable ({error}): restore it") from error


def write_sites(fs: FileSystem, path: str, record: SiteRecord) -> None:
    """Replace sites.json, durably."""
    fs.write_atomically(os.path.join(path, "sites.json"), encode_checked(record))


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
