"""Worlds for the planner, drawn from seeds: members come, go, are drained and wiped, operators ask
for anything, group 0 changes its leader.

Invariant: everything in a world follows from its seed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import msgspec

from samelog.placement import operations, reassigning
from samelog.placement.changes import (
    AnyChange,
    DropGroup,
    PauseTasks,
    PlaceGroups,
    StartTask,
    apply_change,
    put_partition,
)
from samelog.placement.converting import change_copies
from samelog.placement.domains import Domains
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.planner import PlacementPlanner, Planned
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.topics import place_by_hand, place_topic, shared_groups
from samelog.placement.values import PlacedPartition, Placement
from tests import tiers
from tests.placement.cluster import Cluster, Harm, RealGroup, RealPartition
from tests.placement.far_sites import check_readers, put_in_site, turn_site

LIMITS = PlacementLimits(replace_after_ms=30_000, per_member=2, partitions_per_group=3)
STEP_MS = 1_000
STEPS = 150
STEPS_TO_END = 1_500
STEPS_OF_REST = 40

Phase = tuple[TaskKind, TaskState, str]
"""Of a task: what it is, how it stands, and what it asks for next; empty: it waits."""


class World:
    """A cluster, the table of group 0, and the leader of group 0."""

    def __init__(self, seed: int, deaths: float = 0.0, *, is_scarce: bool = False) -> None:
        """`deaths`: the leader of group 0 dies when a task first comes to a phase, and in such a
        share of the times after that; members are replaced in such worlds, too. `is_scarce`: topics
        want more copies than there are hosts, and members die even if data is lost with them.
        """
        tiers.require("simulates")
        self.is_scarce = is_scarce
        self.chance = random.Random(seed)
        self.deaths, self.fate = deaths, random.Random(f"deaths {seed}")
        self.places = random.Random(f"sites {seed}")
        self.homes = random.Random(f"hosts {seed}")
        self.per_host = self.homes.choice((1, 1, 2, 3))
        """How many members share a host, about."""
        self.is_deadly = deaths > 0
        self.phases: dict[int, Phase] = {}
        self.died_in: set[Phase] = set()
        self.cluster = Cluster(self.chance)
        self.now_ms = 0
        self.dead: set[int] = set()
        self.started: Counter[TaskKind] = Counter()
        self.next_member = self.next_partition = 1
        self.racks = self.chance.choice([("",), ("a", "b", "c"), ("x/1", "x/2", "y/1", "y/2")])
        self.manual = self.chance.random() < 0.4
        self.copies = (1, 2, 3, 5, 7) if is_scarce else self.chance.choice([(1, 2, 3, 5), (3,)])
        self.table = PlacementTable(Placement())
        defaults = random.Random(f"defaults {seed}")
        if defaults.random() < 0.3:
            self.table.placement.default_copies = defaults.choice(self.copies)
        if self.places.random() < 0.4:
            self.table.placement.sites.votes = {"lon": True, "nyc": False, "tok": False}
        self.planner = PlacementPlanner(self.table, LIMITS)
        for _ in range(self.chance.randint(1, 4 if is_scarce else 9)):
            self.add_member()
        self.create_topic()

    # --- group 0 ----------------------------------------------------------------------------------

    def another_leader(self) -> None:
        """It knows what is replicated, and who is up since it looks."""
        data = msgspec.msgpack.encode(self.table.placement)
        placement = msgspec.msgpack.decode(data, type=Placement)
        members = [
            replace(each, silent_since_ms=None if each.silent_since_ms is None else self.now_ms)
            for each in self.table.members.values()
        ]
        self.table = PlacementTable(placement, members)
        self.planner = PlacementPlanner(self.table, LIMITS)

    def apply(self, changes: list[AnyChange]) -> None:
        for change in changes:
            if isinstance(change, StartTask):
                self.check_start(change.task)
            try:
                apply_change(self.table.placement, change)
            except PlacementRefused:
                continue
            if isinstance(change, StartTask):
                self.started[change.task.kind] += 1
            if isinstance(change, PlaceGroups):
                for number in range(change.first, change.first + len(change.groups)):
                    self.cluster.found(self.table.placement.groups[number])
            if isinstance(change, DropGroup):
                del self.cluster.groups[change.number]
        self.table.follow(self.table.placement)
        self.check_tasks()

    def states(self) -> MemberStates:
        return MemberStates(self.table, LIMITS, self.now_ms)

    def look(self, share: float) -> None:
        """What the leader of group 0 does in a step; what it proposes may be lost."""
        for number, group in self.cluster.groups.items():
            if group.leader is not None:
                self.table.put_leader(number, group.leader)
        moved = {
            task.number: self.cluster.moved(task.number, task.partition, task.target)
            for task in self.table.placement.tasks.values()
            if task.partition is not None and task.target is not None
        }
        planned = self.planner.look(self.now_ms, moved)
        self.cluster.under_way += planned.orders
        dies = self.leader_dies(planned)
        self.apply([each for each in planned.changes if self.chance.random() < share])
        if dies:
            self.another_leader()

    def leader_dies(self, planned: Planned) -> bool:
        """Whether it does, now that a task has come to another phase: what it asks for is under
        way, what it proposes may be lost.
        """
        asked = {each.task: each.action.name for each in planned.orders}
        tasks = self.table.placement.tasks
        now = {n: (task.kind, task.state, asked.get(n, "")) for n, task in tasks.items()}
        new = {phase for number, phase in now.items() if self.phases.get(number) != phase}
        self.phases = now
        if not self.deaths or not new:
            return False
        if new <= self.died_in and self.fate.random() >= self.deaths:
            return False
        self.died_in |= new
        return True

    def hear(self, share: float) -> None:
        """Groups report, and what they said before arrives."""
        for number in list(self.cluster.groups):
            if self.chance.random() < share:
                self.cluster.report(number)
            said = self.cluster.reports.get(number, [])
            while said and self.chance.random() < share:
                self.apply([said.pop(0)])

    def notice(self) -> None:
        """Who is silent, and since when."""
        for number, member in list(self.table.members.items()):
            is_up = number in self.cluster.up
            if is_up != (member.silent_since_ms is None):
                since = None if is_up else self.now_ms
                self.table.put_member(replace(member, silent_since_ms=since))

    def step(self, share: float = 1.0) -> None:
        self.now_ms += STEP_MS
        self.notice()
        self.let_go()
        self.cluster.live()
        self.look(share)
        self.cluster.carry_out_some(share)
        self.hear(share)

    # --- what happens -----------------------------------------------------------------------------

    def add_member(self) -> None:
        number, self.next_member = self.next_member, self.next_member + 1
        rack = self.racks[number % len(self.racks)]
        host = f"h{self.homes.randint(1, 9 // self.per_host)}" if self.per_host > 1 else ""
        self.table.put_member(PlacedMember(number, f"n{number}", rack, host=host))
        put_in_site(self.table, number, self.places)
        self.cluster.up.add(number)

    def create_topic(self) -> None:
        copies, partitions = self.chance.choice(self.copies), self.chance.randint(1, 8)
        try:
            if self.manual and self.chance.random() < 0.5:
                members = self.states().in_service
                lists = [self.chance.sample(members, min(copies, len(members)))] * partitions
                placed = place_by_hand(self.table, lists)
            else:
                placed = place_topic(self.table, self.states(), LIMITS, partitions, copies)
        except PlacementRefused:
            return
        self.apply([PlaceGroups(self.table.placement.next_group, placed.new_groups)])
        first = self.next_partition
        for index, group in enumerate(placed.groups, first):
            new = PlacedPartition(index, f"t{first}", index - first, group)
            put_partition(self.table.placement, new)
            self.cluster.partitions[index] = RealPartition(index, group, {group})
        self.next_partition += partitions
        self.table.placement.version += 1
        self.table.follow(self.table.placement)

    def delete_topic(self) -> None:
        topics = sorted({each.topic_id for each in self.table.partitions.values()})
        moving = {each.partition for each in self.table.placement.tasks.values()}
        if topics:
            numbers = self.partitions_of(self.chance.choice(topics))
            self.forget(numbers if moving.isdisjoint(numbers) else [])

    def partitions_of(self, topic: str) -> list[int]:
        return [each.number for each in self.table.partitions.values() if each.topic_id == topic]

    def forget(self, partitions: list[int]) -> None:
        for number in partitions:
            del self.table.placement.partitions[number], self.cluster.partitions[number]
            self.table.placement.moves.pop(number, None)
        self.table.placement.version += 1
        self.table.follow(self.table.placement)

    def alter_one(self) -> None:
        """A topic shall have another number of copies: it shows at once, until it has."""
        topics = sorted({each.topic_id for each in self.table.partitions.values()})
        if not topics:
            return
        numbers = self.partitions_of(self.chance.choice(topics))
        copies = self.chance.choice(self.copies)
        try:
            changes = change_copies(self.table, self.states(), numbers, copies)
        except PlacementRefused:
            return
        self.apply(changes)
        shown = {each.partition for each in self.planner.outstanding(self.now_ms)}
        shown.update(task.partition for task in self.table.placement.tasks.values())
        if hidden := [each for each in self.table.placement.moves if each not in shown]:
            raise Harm(f"no list shows that partitions {hidden} are to move")

    def happen(self) -> None:
        """One thing at random."""
        what = self.chance.choice(
            [
                self.stop_one,
                self.stop_one,
                self.start_one,
                self.start_one,
                self.wipe_one,
                self.lose_one,
                self.maintain_one,
                self.drain_one,
                self.drain_one,
                self.stop_draining_one,
                self.add_one,
                self.remove_one,
                self.create_topic,
                self.delete_topic,
                self.another_leader,
                self.turn_one,
                self.turn_one,
                self.turn_one,
                self.pause_all,
                self.reassign_some,
                *([self.replace_one, self.replace_one] if self.is_deadly else ()),
                *([self.alter_one, self.alter_one, self.delete_topic] if self.is_scarce else ()),
            ]
        )
        what()
        if self.table.placement.sites.votes and self.places.random() < 0.1:
            turn_site(self.table, self.places)

    def any_member(self) -> PlacedMember:
        return self.chance.choice([each for _, each in sorted(self.table.members.items())])

    def stop_one(self) -> None:
        self.cluster.up.discard(self.any_member().number)

    def start_one(self) -> None:
        down = sorted(self.table.members.keys() - self.cluster.up - self.dead)
        if down:
            self.cluster.up.add(self.chance.choice(down))

    def wipe_one(self) -> None:
        member = self.any_member().number
        if self.cluster.can_lose(member):
            for group in self.cluster.groups.values():
                if member in group.replicas:
                    group.whole.discard(group.replicas[member].replica)

    def lose_one(self) -> None:
        member = self.any_member().number
        may_die = self.cluster.can_lose(member) or (self.is_scarce and len(self.cluster.up) > 1)
        if len(self.dead) < 2 and may_die and member in self.cluster.up:
            self.cluster.up.discard(member)
            self.dead.add(member)

    def maintain_one(self) -> None:
        member = self.any_member()
        until = self.now_ms + self.chance.randint(10, 90) * STEP_MS
        self.table.put_member(replace(member, maintenance_until_ms=until))

    def asked(self, changes: list[AnyChange]) -> None:
        self.apply(changes)

    def drain_one(self) -> None:
        try:
            self.apply(operations.drain(self.table, self.states(), self.any_member().name))
        except PlacementRefused:
            return

    def stop_draining_one(self) -> None:
        self.apply(operations.stop_draining(self.table, self.any_member().name))

    def add_one(self) -> None:
        if len(self.table.members) < 9:
            self.add_member()

    def replace_one(self) -> None:
        """Another member is to come in the place of one."""
        member = self.any_member()
        if len(self.table.members) < 9 and not member.is_leaving:
            self.add_member()
            self.table.put_member(replace(member, is_leaving=True))

    def let_go(self) -> None:
        """Who is replaced goes once it has nothing."""
        for member in list(self.table.members.values()):
            if member.is_leaving:
                self.remove(member)

    def remove_one(self) -> None:
        self.remove(self.any_member())

    def remove(self, member: PlacedMember) -> None:
        names = {each for group in self.cluster.groups.values() for each in group.replicas}
        try:
            operations.check_removal(self.table, member.name)
        except PlacementRefused:
            return
        is_named = any(member.number in each.wanted for each in self.table.groups.values())
        if member.number not in names and not is_named and len(self.table.members) > 1:
            self.apply(operations.stop_draining(self.table, member.name))
            self.table.drop_member(member.number)
            self.cluster.up.discard(member.number)
            self.dead.discard(member.number)

    def turn_one(self) -> None:
        tasks = sorted(self.table.placement.tasks)
        if not tasks:
            return
        turn = self.chance.choice([operations.pause, operations.resume, operations.cancel])
        try:
            self.apply(turn(self.table, self.chance.choice(tasks)))
        except PlacementRefused:
            return

    def pause_all(self) -> None:
        self.apply([PauseTasks(not self.table.placement.are_paused)])

    def reassign_some(self) -> None:
        partitions = sorted(self.table.partitions)
        members = sorted(self.table.members.keys() - self.dead)
        if not self.manual or not partitions or not members:
            return
        some = self.chance.sample(partitions, min(len(partitions), self.chance.randint(1, 4)))
        copies = min(len(members), self.chance.randint(1, 4))
        try:
            if self.chance.random() < 0.3:
                self.apply(reassigning.stop_reassigning(self.table, some[0]))
            else:
                wanted = {each: self.chance.sample(members, copies) for each in some}
                self.apply(reassigning.reassign(self.table, wanted))
        except PlacementRefused:
            return

    # --- promises ---------------------------------------------------------------------------------

    def check_start(self, task: PlacementTask) -> None:
        """What is begun is needed, and allowed, now."""
        members = self.table.members
        if task.gets is not None:
            gets = members[task.gets]
            if gets.silent_since_ms is not None or self.now_ms < gets.maintenance_until_ms:
                raise Harm(f"{task} gives to a member that is not in service")
            is_to_go = gets.is_leaving or task.gets in self.table.placement.draining
            if task.replica is not None and is_to_go:
                raise Harm(f"{task} gives to a member that is to have nothing")
        self.check_hosts(task)
        if task.kind is not TaskKind.REPLACE or task.loses not in members:
            return
        loses = members[task.loses]
        is_to_go = loses.is_leaving or task.loses in self.table.placement.draining
        if is_to_go and loses.silent_since_ms is not None:
            return
        if self.now_ms < loses.maintenance_until_ms:
            raise Harm(f"{task} replaces a member in maintenance")
        since = loses.silent_since_ms
        if since is None or self.now_ms - since < LIMITS.replace_after_ms:
            raise Harm(f"{task} replaces a member that is not lost")
        silent = [
            each.number
            for each in members.values()
            if each.silent_since_ms is not None
            and self.now_ms >= each.maintenance_until_ms
            and self.table.held.get(each.number)
        ]
        if self.per_host == 1 and len(silent) * 3 >= len(members):
            raise Harm(f"{task} replaces one of {len(silent)} silent members")

    def check_hosts(self, task: PlacementTask) -> None:
        """No task gives a host a second copy."""
        group = self.table.groups[task.group]
        if task.replica is None or task.kind in (TaskKind.READ, TaskKind.ASSIGN):
            return
        rest = [each for each in group.members if each != task.loses]
        host = self.table.host_of(-1 if task.gets is None else task.gets)
        if host in map(self.table.host_of, rest) and not group.is_pinned:
            raise Harm(f"{task} gives {host} a second copy")

    def check_tasks(self) -> None:
        """One task for a group, and so many for a member."""
        groups, members = Counter[int](), Counter[int]()
        for task in self.table.placement.tasks.values():
            groups.update(task.groups)
            if task.kind not in (TaskKind.LEAD, TaskKind.MOVE_PARTITION):
                touched = {task.gets, task.loses} & self.cluster.up
                members.update(each for each in touched if each is not None)
        if any(count > 1 for count in groups.values()):
            raise Harm(f"two tasks have one group: {self.table.placement.tasks}")
        if self.is_calm and any(count > LIMITS.per_member for count in members.values()):
            raise Harm(f"too many tasks on one member: {members}")

    is_calm = False
    """Whether nobody comes back: then who could not be reached was not counted."""

    # --- the end ----------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            if self.chance.random() < 0.25:
                self.happen()
            self.step(self.chance.choice([0.3, 0.7, 1.0]))
        self.heal()
        self.wait_for_rest()
        self.check_end()

    def heal(self) -> None:
        """Who is not dead is up; operators let everything go on, and drain the dead."""
        self.deaths = 0.0
        self.cluster.up = set(self.table.members) - self.dead
        for member in list(self.table.members.values()):
            self.table.put_member(replace(member, maintenance_until_ms=0))
        self.apply([PauseTasks(are_paused=False)])
        for number, task in list(self.table.placement.tasks.items()):
            if task.state is TaskState.PAUSED:
                self.apply(operations.resume(self.table, number))
        self.notice()
        self.give_up_what_is_lost()
        for number in sorted(self.dead):
            try:
                name = self.table.members[number].name
                self.apply(operations.drain(self.table, self.states(), name))
            except PlacementRefused:
                continue

    def give_up_what_is_lost(self) -> None:
        """Operators delete the topics of groups that will never have a majority again."""
        lost = [n for n, each in self.cluster.groups.items() if self.is_lost(each)]
        moving = self.table.placement.tasks.values()
        stuck = {each.partition for each in moving if {*each.groups} & {*lost}}
        stuck |= {n for n, group in self.table.placement.moves.items() if group in lost}
        gone = {each.topic_id for n, each in self.table.partitions.items() if n in stuck}
        gone |= {each.topic_id for each in self.table.partitions.values() if each.group in lost}
        self.forget([n for topic in sorted(gone) for n in self.partitions_of(topic)])

    def is_lost(self, group: RealGroup) -> bool:
        left = set(group.voters()) - self.dead
        whole = {n for n in left if group.replicas[n].replica in group.whole}
        return self.is_scarce and (len(left) * 2 <= len(group.voters()) or not whole)

    def wait_for_rest(self) -> None:
        """Until nothing has been begun for long."""
        rest, before = 0, self.started.total()
        for _ in range(STEPS_TO_END):
            self.apply(operations.allow())
            self.step()
            is_quiet = not self.table.placement.tasks and self.started.total() == before
            rest, before = rest + 1 if is_quiet else 0, self.started.total()
            if rest >= STEPS_OF_REST:
                return
        raise Harm(f"no end: {self.planner.needs} {self.table.placement.tasks} {self.started}")

    def check_end(self) -> None:
        """Everything is as it shall be."""
        able = self.states().in_service
        for number, real in self.cluster.groups.items():
            self._check_group(number, able)
            up = [each for each in real.replicas.values() if each.member in self.cluster.up]
            if any(each.replica not in real.whole for each in up):
                raise Harm(f"group {number} is not whole")
        if set(self.cluster.groups) != set(self.table.groups):
            raise Harm("there are groups that the table does not name")
        for number, partition in self.table.partitions.items():
            there = self.cluster.partitions[number]
            if there.open_in != partition.group or there.files != {partition.group}:
                raise Harm(f"{partition} is open in {there}")
        self._check_even(able)
        self._check_sizes(able)
        for number in self.dead:
            operations.check_removal(self.table, self.table.members[number].name)
        if self.is_scarce and able and (left := self.planner.outstanding(self.now_ms)):
            raise Harm(f"something is left: {left}")

    def _check_sizes(self, able: list[int]) -> None:
        """Groups with the same goal have as many partitions, and default groups are there."""
        sizes: dict[int, list[int]] = {}
        for group in self.table.groups.values():
            is_well = len(self.table.healthy(group)) == len(group.replicas)
            if not group.is_pinned and is_well:
                sizes.setdefault(group.copies, []).append(self.table.size_of(group.number))
        for copies, found in sizes.items():
            if max(found) - min(found) > 1:
                raise Harm(f"partitions with {copies} copies are not even: {found}")
        default = self.table.placement.default_copies
        if default and able and len(shared_groups(self.table, default)) < len(able):
            raise Harm(f"{len(able)} members have not as many default groups")

    def _check_group(self, number: int, able: list[int]) -> None:
        group, real = self.table.groups[number], self.cluster.groups[number]
        if set(group.everybody) != set(real.replicas) or len(group.voters) != len(group.members):
            raise Harm(f"{real} is not what the table says: {group}")
        if set(group.voters) != set(real.voters()):
            raise Harm(f"others vote in {real} than the table says: {group}")
        check_readers(self.table, self.states(), group)
        if group.wanted:
            if not set(group.wanted) <= set(able):
                return
            raise Harm(f"{group} is not where it is wanted")
        hosts = [self.table.host_of(each) for each in group.members]
        others = {each for each in able if self.table.host_of(each) not in hosts}
        homeless = [each for each in group.members if each not in able]
        copies = self.states().copies_of(group)
        if others and (homeless or len(group.members) != copies):
            raise Harm(f"{group} has not what it shall have: {able}")
        if len(group.members) > copies or (self.is_scarce and self.dead & {*group.everybody}):
            raise Harm(f"{group} has too much")
        if group.preferred in able and real.leader != group.preferred:
            raise Harm(f"{group} is led by {real.leader}")
        domains = Domains(self.table)
        if group.is_pinned or homeless:
            return
        if len(set(hosts)) < len(hosts):
            raise Harm(f"{group} has two copies on a host: {hosts}")
        if domains.shared_within(group.members) > domains.least(len(group.members), able):
            raise Harm(f"{group} is too near")

    def _check_even(self, able: list[int]) -> None:
        groups = self.table.groups.values()
        if any(each.is_pinned for each in groups) or len(self.racks) > 1 or not able:
            return
        if self.per_host > 1:  # hosts have more members than others
            return
        if any(not set(each.members) <= set(able) for each in groups):
            return
        held = [len(self.table.held.get(each, ())) for each in able]
        if max(held) - min(held) > 1:
            raise Harm(f"copies are not even: {held}")
        if len(self.copies) == 1 and all(len(each.members) == each.copies for each in groups):
            led = Counter(each.preferred for each in groups)
            counts = [led[each] for each in able]
            if max(counts) - min(counts) > 1:
                raise Harm(f"leaders are not even: {counts}")
