"""Worlds of promotions, drawn from seeds: sites are cut off and come back, members crash, operators
promote what is left, together or alone, and the site of before comes back.

What decides is the product's: Raft, the state machine, when a promotion is refused, who agrees, who
is of before, what a member does that is told so, and which nodes a client still has to do with.
The world carries messages, and plays operators.

Invariant: everything in a world follows from its seed. After any history, one cluster's id has one
history of records; who was told that it is of before acknowledges nothing; a client that has met a
promoted cluster has nothing to do with the one of before.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any, cast

from samelog.admin.site_requests import PromoteSite
from samelog.consensus import Busy, ChangePending, Configuration, NotLeader, ProgressState
from samelog.consensus.messages import RaftMessage
from samelog.placement.cluster_ids import ends, parse_cluster_id
from samelog.replicator.cluster_pin import ClusterPin
from samelog.sequencer.admin.siting import promoting
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.node_dir import NodeDirectoryError
from samelog.sequencer.cluster.promotion import SiteWasPromoted, follow
from samelog.sequencer.sites import staying
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member as NamedMember
from samelog.sequencer.state.tables.members import SetMembers
from samelog.sequencer.state.tables.sites import AddSite, SetSiteCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.wire.errors import ProtocolFault
from tests import tiers
from tests.promotions.data_group import DataGroup, place
from tests.promotions.harm import Harm
from tests.promotions.member import DIRECTORY, RECORD, Member
from tests.promotions.memory_files import MemoryFiles
from tests.promotions.programs import TOPIC, Programs, open_inputs

STEP_S = 0.1
FAULTS_S = 60.0
REST_S = 25.0
FIRST_ID = "0123456789abcdef"
ENDS_S = 0.5
"""So long a process takes to end that was told that it is of before."""


@dataclass(slots=True)
class Message:
    """On its way until then."""

    at: float
    sender: int
    to: int
    lives: tuple[int, int]
    body: RaftMessage


@dataclass(slots=True)
class Waiting:
    """A record that a client waits for: which, by which leader, in which life, as what cluster."""

    client: int
    record: bytes
    leader: int
    life: int
    cluster_id: str


class World:
    """Two or three sites, of which the first one votes."""

    def __init__(self, seed: int, *, is_busy: bool = False) -> None:
        """`is_busy`: programs write, and a data group is there, too."""
        tiers.require("simulates")
        self.is_busy = is_busy
        self.chance = random.Random(seed)
        self.inputs: list[int] = []
        self.now = 100.0
        sizes = {"lon": 3, "nyc": self.chance.randint(1, 3)}
        if self.chance.random() < 0.4:
            sizes["par"] = self.chance.randint(1, 2)
        self.members = self._made(sizes)
        self.lives = dict.fromkeys(range(len(self.members)), 0)
        self.cut: set[frozenset[str]] = set()
        """Pairs of sites without a line."""
        self.links: dict[tuple[int, int], tuple[int, int]] = {}
        """(who dialled, whom) -> the lives in which they are connected."""
        self.messages: deque[Message] = deque()
        self.histories: dict[str, list[bytes]] = {FIRST_ID: []}
        self.waiting: list[Waiting] = []
        self.acknowledged: dict[str, set[bytes]] = {FIRST_ID: set()}
        self.pins = [ClusterPin(cast(Any, MemoryFiles()), "client") for _ in range(2)]
        self.met = ["", ""]
        self.promoted: dict[str, tuple[str, str, Member]] = {}
        """A cluster's id -> which site was promoted, what it was called before, and with whom."""
        self.refusals = 0
        self.superseded = 0
        self.gone: set[int] = set()
        """Who was told that it is of before, and has ended."""
        self.told_of: dict[int, SiteWasPromoted] = {}
        self._records = 0
        own = random.Random(f"programs {seed}")
        self.programs = Programs(self.inputs, own)
        self.group = DataGroup(self._holders(), own)
        for member in self.members:
            self.start(member)

    def _made(self, sizes: dict[str, int]) -> list[Member]:
        sites = [name for name, size in sizes.items() for _ in range(size)]
        voters = [number for number, site in enumerate(sites) if site == "lon"]
        learners = [number for number, site in enumerate(sites) if site != "lon"]
        named = [
            NamedMember(n, f"n{n}", "h:1", f"samelog://node/n{n}", voter=n in voters)
            for n in range(len(sites))
        ]
        commands: list[AnyCommand] = [SetMembers(named, FIRST_ID)]
        commands += [AddSite(name, name == "lon", 1) for name in sizes]
        commands += [SetSiteCommand(number, site) for number, site in enumerate(sites)]
        commands.append(CreateTopicCommand(TOPIC, "t", 1, {}, 3))
        base = StateMachine()
        for command in commands:
            if isinstance(base.apply(command), Rejection):
                raise Harm(f"{command} is refused")
        self.inputs += open_inputs(base)
        place(base, voters, [sites.index(name) for name in sizes if name != "lon"])
        return [Member(n, site, base, voters, learners) for n, site in enumerate(sites)]

    def _holders(self) -> list[int]:
        """Who has a replica of the data group: all of the first site, one of each other."""
        sites = [each.site for each in self.members]
        return [n for n, site in enumerate(sites) if site == "lon" or sites.index(site) == n]

    # --- a whole world ----------------------------------------------------------------------------

    def run(self) -> None:
        """Faults, then rest in which all that may comes back."""
        end = self.now + FAULTS_S
        while self.now < end:
            self.step()
            if self.chance.random() < 0.02:
                self.fault()
            if self.chance.random() < 0.02:
                self.operate()
        self.cut.clear()
        for member in self.members:
            if not member.up and not member.is_lost:
                self.start(member)
        end = self.now + REST_S
        while self.now < end:
            self.step()
        self.check_end()

    def step(self) -> None:
        """One moment."""
        self.now += STEP_S
        self.connect()
        for member in self.members:
            if member.up:
                member.raft.tick(self.now)
                self.drain(member)
        self.deliver()
        for member in self.members:
            if member.up and member.told is not None and self.now - member.told > ENDS_S:
                self.end(member)
        self.grow()
        if self.is_busy:
            self.programs.step(self)
            self.group.step(self)
        self.clients()

    # --- lines ------------------------------------------------------------------------------------

    def reaches(self, one: Member, other: Member) -> bool:
        """Whether both run, and there is a line."""
        is_cut = frozenset((one.site, other.site)) in self.cut
        return one.up and other.up and not is_cut and one is not other

    def connect(self) -> None:
        """Whoever is not connected dials; ids are compared first, as `dispatch` does."""
        for one in self.members:
            for other in self.members:
                pair = one.number, other.number
                lives = self.lives[one.number], self.lives[other.number]
                if not self.reaches(one, other):
                    self.links.pop(pair, None)
                elif self.links.get(pair) != lives and self.chance.random() < 0.3:
                    self.links.pop(pair, None)
                    if self.introduced(one, other):
                        self.links[pair] = lives

    def introduced(self, one: Member, other: Member) -> bool:
        """Whether the one that is dialled takes the other as a member of its cluster."""
        theirs, own = one.cluster_id, other.cluster_id
        if ends(own, theirs):
            self.answer(one, other)
        return theirs == own

    def answer(self, one: Member, other: Member) -> bool:
        """Whether a member tells another one that it is of before, as `dispatch` does."""
        places = other.cluster_id, other.number, one.number
        known_as = staying.KnownAs(one.cluster_id, *one.newest)
        known = staying.stays(other.machine.state, *places, known_as)
        if known is not None:
            self.tell(one, SiteWasPromoted(other.cluster_id, stays=known))
        return known is not None

    def tell(self, member: Member, found: SiteWasPromoted) -> None:
        """As `PeerEvents.on_superseded` does: it counts no more, and its process ends soon."""
        if member.told is not None:
            return
        member.life.is_over()
        member.told, self.superseded = self.now, self.superseded + 1
        self.told_of[member.number] = found

    def end(self, member: Member) -> None:
        """It follows, or is of before."""
        self.stop(member)
        if not self.told_of[member.number].stays:
            self.gone.add(member.number)
        try:
            follow(cast(Any, member.files), DIRECTORY, self.told_of[member.number])
        except NodeDirectoryError:
            return
        self.start(member)

    def start(self, member: Member) -> None:
        """A process begins: it asks the other sites, then has a life, if it may."""
        self.lives[member.number] += 1
        try:
            member.start(self.now, self.chance)
        except NodeDirectoryError:
            return
        if member.number in self.gone:
            raise Harm(f"n{member.number} begins again, and was told that it is of before")
        for other in self.members:
            is_newer = self.reaches(member, other) and ends(other.cluster_id, member.cluster_id)
            if is_newer and other.site != member.site and self.answer(member, other):
                return

    def stop(self, member: Member) -> None:
        member.stop()
        self.lives[member.number] += 1

    def drain(self, member: Member) -> None:
        while member.up and (effects := member.raft.take_effects()):
            for to, message in member.carry_out(effects):
                self.send(member, to, message)
        self.check_history(member)

    def send(self, member: Member, to: int, message: RaftMessage) -> None:
        lives = self.links.get((member.number, to))
        if lives is not None:
            is_far = self.members[to].site != member.site
            delay = self.chance.uniform(0.0, 0.15 if is_far else 0.03)
            self.messages.append(Message(self.now + delay, member.number, to, lives, message))

    def deliver(self) -> None:
        for _ in range(len(self.messages)):
            message = self.messages.popleft()
            if message.at > self.now:
                self.messages.append(message)
            elif self.links.get((message.sender, message.to)) == message.lives:
                member = self.members[message.to]
                member.raft.step(message.sender, message.body, self.now)
                self.drain(member)

    # --- what leaders do --------------------------------------------------------------------------

    def grow(self) -> None:
        """Learners of a site that votes become voters once they have everything."""
        for member in self.members:
            if not member.leads or member.told is not None:
                continue
            raft, sites = member.raft, member.machine.state.placement.sites
            for learner in raft.learners:
                progress = raft.progress(learner)
                is_close = progress is not None and progress.state is ProgressState.REPLICATE
                if is_close and sites.may_vote(learner) and self.chance.random() < 0.1:
                    voters = (*raft.voters, learner)
                    rest = [each for each in raft.learners if each != learner]
                    try:
                        wanted = Configuration(voters, tuple(rest))
                        raft.propose_configuration(wanted, self.now)
                    except (NotLeader, Busy, ChangePending):
                        return
                    self.drain(member)
                    break

    # --- clients ----------------------------------------------------------------------------------

    def clients(self) -> None:
        """They try any node, and go where a leader is; what is committed there is acknowledged."""
        self.acknowledge()
        for client, pin in enumerate(self.pins):
            member = self.chance.choice(self.members)
            if not member.up or self.chance.random() < 0.5:
                continue
            try:
                pin.meet(member.cluster_id)
            except ProtocolFault:
                continue
            met = self.met[client]
            if met and not (met == member.cluster_id or ends(member.cluster_id, met)):
                raise Harm(f"client {client} met {met}, and goes to {member.cluster_id}")
            self.met[client] = member.cluster_id
            self.publish(client, member)

    def publish(self, client: int, member: Member) -> None:
        record = RECORD + str(self._records).encode()
        try:
            member.raft.propose([record], self.now)
        except (NotLeader, Busy):
            return
        self._records += 1
        life = self.lives[member.number]
        self.waiting.append(Waiting(client, record, member.number, life, member.cluster_id))
        self.drain(member)

    def acknowledge(self) -> None:
        for each in list(self.waiting):
            leader = self.members[each.leader]
            if not leader.up or self.lives[each.leader] != each.life or not leader.leads:
                self.waiting.remove(each)
            elif each.record in leader.records[-200:]:
                self.waiting.remove(each)
                if leader.told is not None:
                    raise Harm(f"n{each.leader} acknowledges, and was told that it is of before")
                self.acknowledged.setdefault(each.cluster_id, set()).add(each.record)

    # --- faults and operators ---------------------------------------------------------------------

    def fault(self) -> None:
        chance, sites = self.chance, sorted({each.site for each in self.members})
        member = chance.choice(self.members)
        what = chance.choice(["cut", "heal", "crash", "start", "site down", "site up", "lost"])
        if what == "cut":
            self.cut.add(frozenset(chance.sample(sites, 2)))
        elif what == "heal" and self.cut:
            self.cut.discard(chance.choice(sorted(self.cut, key=sorted)))
        elif what == "crash" and member.up:
            self.stop(member)
        elif what == "start" and not member.up and not member.is_lost:
            self.start(member)
        elif what == "site down":
            for each in self.members:
                if each.site == member.site and each.up:
                    self.stop(each)
        elif what == "site up":
            for each in self.members:
                if each.site == member.site and not each.up and not each.is_lost:
                    self.start(each)
        elif what == "lost" and chance.random() < 0.2:
            self.stop(member)
            member.is_lost = True

    def operate(self) -> None:
        """One or two operators ask for the promotion of one site at a moment, each another member.
        They say that the others are down only if that is so.
        """
        site = self.chance.choice(self.members).site
        there = [each for each in self.members if each.site == site]
        asked = self.chance.sample(there, min(len(there), self.chance.choice([1, 2])))
        orders = [(each, order) for each in asked if (order := self.checked(each)) is not None]
        for member, _ in orders:
            member.agreement.promise(member.number, self.now)
        agreed = [(member, order) for member, order in orders if self.agreed(member, order)]
        for member, order in agreed:
            self.promote(member, order)

    def mates(self, member: Member) -> list[Member]:
        return [each for each in self.members if each.site == member.site and each is not member]

    def checked(self, member: Member) -> PromoteSite | None:
        """What is asked of a member, unless it refuses."""
        if not member.up or member.told is not None or member.leads:
            return None
        newest = max([each for each in [member, *self.mates(member)] if each.up], key=newest_of)
        voters = [self.members[each] for each in member.raft.voters]
        without = tuple(f"n{each.number}" for each in self.mates(member) if each.is_lost)
        down = not any(each.up for each in voters if each.site != member.site)
        entry = newest.newest[1], newest.newest[0]
        order = PromoteSite(member.site, *entry, without, down, confirm="c")
        there = [each.number for each in self.members if self.links_both(member, each)]
        mates = [each.number for each in self.mates(member)]
        try:
            promoting.check_promotion(member.standing(self.now, there, mates), order)
        except ChangeRefused:
            self.refusals += 1
            return None
        return order if member.agreement.promise(member.number, self.now) else None

    def links_both(self, one: Member, other: Member) -> bool:
        return (one.number, other.number) in self.links and (other.number, one.number) in self.links

    def agreed(self, member: Member, order: PromoteSite) -> bool:
        """Whether all others of the site agree, as `promoting.agree` judges."""
        for mate in self.mates(member):
            if f"n{mate.number}" in order.without:
                continue
            is_there = self.links_both(member, mate)
            silent_s = mate.raft.leader_silent_s(self.now) if is_there else 0.0
            if not is_there or mate.leads or silent_s < promoting.HEARD_S / 2:
                return False
            if mate.newest > member.newest or not mate.agreement.promise(member.number, self.now):
                return False
        return True

    def promote(self, member: Member, order: PromoteSite) -> None:
        others = [each for each in self.mates(member) if f"n{each.number}" not in order.without]
        self.check_promotion(member, others)
        before = member.cluster_id
        self.stop(member)
        member.begin_anew(f"{self.chance.getrandbits(64):016x}", [each.number for each in others])
        for site, earlier, first in self.promoted.values():
            if (site, earlier) == (member.site, before) and not first.is_lost:
                raise Harm(f"site {site} is promoted twice")
        self.promoted[member.cluster_id] = member.site, before, member
        if member.cluster_id != before:
            self.histories[member.cluster_id] = member.snapshot_records
        if self.chance.random() < 0.7:  # else it crashes, and comes back some time
            self.start(member)

    # --- what must hold ---------------------------------------------------------------------------

    def check_promotion(self, member: Member, others: list[Member]) -> None:
        """Nobody that votes elsewhere is reached; nobody of the site has more."""
        voters = [self.members[each] for each in member.raft.voters]
        reached = [
            each for each in voters if each.site != member.site and self.reaches(member, each)
        ]
        if any(self.links_both(member, each) for each in reached):
            raise Harm(f"n{member.number} is promoted beside {reached[0].number}, which it reaches")
        if any(each.newest > member.newest for each in others):
            raise Harm(f"n{member.number} is promoted, and another one of its site has more")

    def check_history(self, member: Member) -> None:
        """All that are of one cluster have one history."""
        history = self.histories.setdefault(member.cluster_id, [])
        known = min(len(history), len(member.records))
        if history[:known] != member.records[:known]:
            raise Harm(f"n{member.number} has another history of {member.cluster_id}")
        history += member.records[known:]

    def check_end(self) -> None:
        """One cluster is left of those that can reach each other; what it acknowledged is there."""
        alive = [each for each in self.members if each.up and each.told is None]
        found = {each.cluster_id for each in alive}
        if any(ends(one, other) for one in found for other in found):
            raise Harm(f"nodes that reach each other are of {sorted(found)}")
        for cluster_id, acknowledged in self.acknowledged.items():
            if not acknowledged <= set(self.histories[cluster_id]):
                raise Harm(f"{cluster_id} lost what it acknowledged")
        for member in alive:
            acknowledged = self.acknowledged.get(member.cluster_id, set())
            if member.leads and not acknowledged <= set(member.records):
                raise Harm(f"n{member.number} leads without what was acknowledged")
        for cluster_id, history in self.histories.items():
            self.programs.check(history, parse_cluster_id(cluster_id).promotions)
        self.group.check(self)


def newest_of(member: Member) -> tuple[int, int]:
    return member.newest
