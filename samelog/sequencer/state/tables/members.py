"""Members of the cluster: who they are, where clients reach them, and what they support.

Invariant: a number is given to one member only, ever; a life of a member counts once it is let in.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command, Rejection, WhyNot


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One node of the cluster, under a number that no other node ever has.

    `promote`: a learner that becomes a voter when it has caught up; `replaces`: the number of the
    node that is removed after that, None if none.
    """

    number: Unsigned32
    name: str
    address: str
    identity: str
    voter: bool
    promote: bool = True
    replaces: Unsigned32 | None = None


class MemberLives(NamedTuple):
    """Boot and id of a member's newest life, the id of the one that counts though it had forgotten
    something (empty: none), the feature level that the newest supports (0: not known), and the host
    on which it is (empty: not known).
    """

    boot: int = 0
    incarnation: str = ""
    let_in: str = ""
    level: int = 0
    host: str = ""


class Advertised(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One Kafka listener of a node, by the name it has on every node, and where clients find it;
    `rack`: where the node is, empty if nobody said.
    """

    name: str
    host: str
    port: int
    rack: str = ""


class SetMembers(Command, frozen=True, tag=10):
    """All members; always the state machine's share of a configuration entry of Raft, whose voters
    and learners are these.
    """

    members: list[Member]
    cluster_id: str = ""
    """Of the first one: what tells this cluster from any other of its name."""


class NodeStarted(Command, frozen=True, tag=9):
    """A node's life: its durable boot counter and the random id of this start, so that a copy of
    its directory, or another one, is recognised; the newest feature level that it supports, and its
    host.
    """

    node: str
    boot: int
    number: Unsigned32
    incarnation: str
    level: Unsigned32
    host: str = ""


class LetIn(Command, frozen=True, tag=45):
    """This life of a node counts from here on, whatever it forgot: this entry was committed without
    it.
    """

    number: Unsigned32
    incarnation: str


class SetMaintenanceCommand(Command, frozen=True, tag=11):
    """Nodes are worked on until a time (wall clock, ms), and not failed; 0 ends that."""

    nodes: list[str]
    until_ms: int


class RaiseLevel(Command, frozen=True, tag=17):
    """The cluster's feature level is `level` from here on, if it was `since` and all members
    support it.
    """

    since: Unsigned32
    level: Unsigned32
    at_ms: int


class SetListeners(Command, frozen=True, tag=20):
    """Where Kafka clients reach a member; replaces what was known."""

    node: Unsigned32
    listeners: list[Advertised]


class MembersTable(msgspec.Struct):
    """The cluster and its members. A member that is missing in `started` never started."""

    cluster_id: str = ""
    """Empty until the first leader has written it down, with the members."""
    level: int = 0
    """The feature level; 0 until the first leader has written down what all members support."""
    by_number: dict[int, Member] = {}
    """Empty until the first leader has written down whom the configuration files name."""
    version: int = 0
    next_number: int = 0
    started: dict[int, MemberLives] = {}
    maintenance: dict[str, int] = {}
    """Name -> until when the member is worked on (wall clock, ms)."""
    listeners: dict[int, list[Advertised]] = {}
    """Member -> where Kafka clients reach it."""

    def host_of(self, number: int) -> str:
        """Return the host of a member; one that has not said any is a host of its own."""
        return self.started.get(number, MemberLives()).host or f"member {number}"

    def names_on(self, host: str) -> list[str]:
        """Return the names of the members on a host, in the order of their numbers."""
        return [
            member.name
            for number, member in sorted(self.by_number.items())
            if self.host_of(number) == host
        ]

    def name_cluster(self, cluster_id: str) -> None:
        """Give the cluster its id; the first one stays."""
        self.cluster_id = self.cluster_id or cluster_id

    def set_members(self, command: SetMembers) -> None:
        """Replace the members. The first id of the cluster stays."""
        self.name_cluster(command.cluster_id)
        self.by_number = {member.number: member for member in command.members}
        self.version += 1
        self.next_number = max([self.next_number, *(number + 1 for number in self.by_number)])
        self.started = {n: life for n, life in self.started.items() if n in self.by_number}
        self.listeners = {n: there for n, there in self.listeners.items() if n in self.by_number}
        names = {member.name for member in command.members}
        self.maintenance = {n: until for n, until in self.maintenance.items() if n in names}

    def start(self, command: NodeStarted) -> int | Rejection:
        """Note a life of a member; return its boot."""
        known = self.started.get(command.number, MemberLives())
        if command.boot < known.boot:
            return Rejection("STALE_BOOT", f"{command.node} had boot {known.boot} already")
        said = command.level, command.host
        lives = MemberLives(command.boot, command.incarnation, known.let_in, *said)
        self.started[command.number] = lives
        return command.boot

    def let_in(self, command: LetIn) -> None:
        """Let a life of a member count, whatever it forgot."""
        known = self.started.get(command.number, MemberLives())
        self.started[command.number] = known._replace(let_in=command.incarnation)

    def set_maintenance(self, command: SetMaintenanceCommand) -> WhyNot:
        """Begin or end the maintenance of members: of all that are named, or of none."""
        unknown = set(command.nodes) - {member.name for member in self.by_number.values()}
        if unknown:
            return "UNKNOWN_NODE", f"no node is called {min(unknown)!r}"
        for node in command.nodes:
            if command.until_ms:
                self.maintenance[node] = command.until_ms
            else:
                self.maintenance.pop(node, None)
        return None

    def raise_level(self, command: RaiseLevel) -> WhyNot:
        """Raise the feature level. Learners count too: they apply what voters do."""
        if self.level != command.since or command.level <= command.since:
            return "LEVEL_MOVED", f"the feature level is {self.level}"
        older = [
            member.name
            for member in self.by_number.values()
            if member.number not in self.started
            or self.started[member.number].level < command.level
        ]
        if older or not self.by_number:
            return "LEVEL_UNSUPPORTED", f"not known to support level {command.level}: {older}"
        self.level = command.level
        return None

    def set_listeners(self, command: SetListeners) -> WhyNot:
        """Replace the listeners of a member."""
        if self.by_number and command.node not in self.by_number:
            return "UNKNOWN_NODE", f"no node has the number {command.node}"
        self.listeners[command.node] = command.listeners
        return None


MemberCommand = SetMembers | NodeStarted | LetIn | SetMaintenanceCommand | RaiseLevel | SetListeners
