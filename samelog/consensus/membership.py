"""Who belongs to the group, and since which entry (Raft thesis, sections 4.1 and 4.2).

A configuration entry names all voters and learners. A node goes by the newest one in its log,
committed or not, from the moment it is appended; if that entry is replaced, by the one before.
`context` is the state machine's share of the entry: the core hands it on without looking.

Invariant: two configurations that follow each other differ by at most one voter, so that any two
of their majorities have a voter in common.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller

import msgspec

from samelog.consensus.errors import MalformedMessage
from samelog.consensus.log import RaftLog
from samelog.consensus.types import Entry, NodeNumber, Snapshot

CONFIGURATION = b"\xc1"
"""First byte of a configuration entry; no MessagePack value, thus no other entry, begins so."""


class Membership(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Those who vote, and those who only receive."""

    voters: tuple[NodeNumber, ...]
    learners: tuple[NodeNumber, ...]

    def __contains__(self, node: int) -> bool:
        return node in self.voters or node in self.learners


class Configuration(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The data of a configuration entry, behind its first byte."""

    voters: tuple[NodeNumber, ...]
    learners: tuple[NodeNumber, ...]
    context: bytes = b""

    @property
    def membership(self) -> Membership:
        """Whom it names."""
        return Membership(self.voters, self.learners)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Configuration)


def encode_configuration(configuration: Configuration) -> bytes:
    """The data of an entry."""
    return CONFIGURATION + _encoder.encode(configuration)


is_configuration: Callable[[bytes], bool] = methodcaller("startswith", CONFIGURATION)
"""Whether an entry's data is a configuration."""


def decode_configuration(data: bytes) -> Configuration:
    """What `encode_configuration` was given. Raises MalformedMessage."""
    try:
        configuration = _decoder.decode(memoryview(data)[1:])
        check_membership(configuration.membership)
    except (msgspec.MsgspecError, ValueError) as error:
        raise MalformedMessage(f"no configuration: {error}") from error
    return configuration


def check_membership(membership: Membership) -> None:
    """Raises ValueError for a group that nobody can lead, or that names a node twice."""
    members = [*membership.voters, *membership.learners]
    if not membership.voters or len(set(members)) != len(members):
        raise ValueError("a group needs voters, and no node may be named twice")


def check_change(old: Membership, new: Membership) -> None:
    """Raises ValueError unless `new` may follow `old`: at most one voter comes or goes."""
    check_membership(new)
    changed = set(old.voters) ^ set(new.voters)
    if len(changed) > 1:
        raise ValueError(f"voters {sorted(changed)} would change at once; one at a time may")


class Memberships:
    """The configurations of the log that may still matter, oldest first."""

    __slots__ = ("_indexes", "_known", "current", "index")

    def __init__(self, base_index: int, base: Membership) -> None:
        self._indexes: list[int] = []
        self._known: list[Membership] = []
        self.reset(base_index, base)

    def reset(self, index: int, membership: Membership) -> None:
        """A snapshot that reaches to `index` says who belongs to the group."""
        self._indexes, self._known = [index], [membership]
        self._settle()

    def append(self, found: Iterable[tuple[int, Membership]]) -> None:
        """Entries with these configurations were appended."""
        for index, membership in found:
            self._indexes.append(index)
            self._known.append(membership)
        self._settle()

    def cut_from(self, index: int) -> bool:
        """The log lost its entries from `index` on; whether that changes who belongs to it."""
        before = self.index
        while len(self._indexes) > 1 and self._indexes[-1] >= index:
            self._indexes.pop()
            self._known.pop()
        self._settle()
        return self.index != before

    def compact(self, index: int) -> None:
        """Nobody will ask for an earlier index any more."""
        while len(self._indexes) > 1 and self._indexes[1] <= index:
            del self._indexes[0], self._known[0]

    def at(self, index: int) -> Membership:
        """Who belonged to the group by the log up to `index`."""
        return self._known[max(0, bisect_right(self._indexes, index) - 1)]

    def _settle(self) -> None:
        self.current = self._known[-1]
        self.index = self._indexes[-1]


def configurations_in(entries: Sequence[Entry]) -> list[tuple[int, Membership]]:
    """(index, membership) of the configuration entries. Raises MalformedMessage."""
    found = []
    for entry in entries:
        if entry.data.startswith(CONFIGURATION):
            membership = decode_configuration(entry.data).membership
            found.append((entry.index, membership))
    return found


def check_members(voters: Sequence[int], learners: Sequence[int]) -> None:
    """Raises ValueError for a membership that cannot be."""
    members = [*voters, *learners]
    if len(set(members)) != len(members):
        raise ValueError(f"no node may be named twice: {members}")


def of_files(given: Membership, snapshot: Snapshot | None, log: RaftLog) -> Memberships:
    """Who belongs to the group by what is on disk, else by what is given."""
    if snapshot is None:
        memberships = Memberships(0, given)
    else:
        memberships = Memberships(
            snapshot.last_index, Membership(snapshot.voters, snapshot.learners)
        )
    start = max(memberships.index, log.base_index) + 1
    memberships.append(configurations_in(log.entries(start, log.last_index + 1)))
    return memberships
