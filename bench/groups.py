"""Data groups: how long it takes to plan for a large cluster and how even its placement is, in
memory; and what groups of a running cluster cost.

    python -m bench groups [--members 50] [--groups 1000] [--partitions 20000] [--racks 1]
                           [--rounds 5] [--json]
    python -m bench groups --what throughput [--counts 0 1 3 6] [--megabytes 100] [--rounds 5]
                           [--nodes 5]
    python -m bench groups --what idle [--groups 200] [--partitions 10000] [--seconds 10]

*throughput* and *idle* are in `bench/live_groups.py`.

In *plan*, a cluster with three copies of everything loses a member. `plan_ms` is what the leader of
group 0 needs to find all tasks that follow, `first_ms` the same by a leader that was just elected
and looks at everything, `quiet_ms` a look at a table in which nothing changed. Then the tasks are
carried out, and a member is added; `apart` is how many groups the fullest member has more than the
emptiest, each time. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from msgspec.structs import replace as changed

from bench import live_groups
from samelog.placement.changes import (
    ConfirmGroup,
    PlaceGroups,
    apply_change,
)
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.planner import PlacementPlanner
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import Action, GroupOrder
from samelog.placement.topics import place_topic
from samelog.placement.values import PlacedPartition, Placement

COPIES = 3
TOPIC_PARTITIONS = 100
LOST_MS = 10_000_000


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """How many milliseconds something takes, and what it comes to."""
    began = time.perf_counter()
    found = work()
    return (time.perf_counter() - began) * 1000, found


def make_table(options: argparse.Namespace) -> tuple[PlacementTable, PlacementLimits]:
    """Topics of a hundred partitions, one after another."""
    per_group = options.partitions // options.groups
    limits = PlacementLimits(partitions_per_group=per_group)
    members = [
        PlacedMember(number, f"n{number}", f"r{number % options.racks}")
        for number in range(options.members)
    ]
    table = PlacementTable(Placement(), members)
    for first in range(0, options.partitions, TOPIC_PARTITIONS):
        states = MemberStates(table, limits, 0)
        placed = place_topic(table, states, limits, TOPIC_PARTITIONS, COPIES)
        apply_change(table.placement, PlaceGroups(table.placement.next_group, placed.new_groups))
        for number, home in enumerate(placed.groups, first):
            new = PlacedPartition(number, f"t{first}", number - first, home)
            table.placement.partitions[number] = new
        table.follow(table.placement)
    for group in table.groups.values():
        table.put_leader(group.number, group.preferred)
    return table, limits


def apart(table: PlacementTable) -> int:
    """Among members that are heard of."""
    there = [each for each in table.members if table.is_heard(each)]
    counts = [len(table.held.get(each, ())) for each in there]
    return max(counts) - min(counts)


def carry_out(table: PlacementTable, order: GroupOrder) -> None:
    """A group does at once what it is asked for."""
    group = table.groups[order.group]
    if order.action is Action.LEAD:
        table.put_leader(order.group, order.member or 0)
        return
    replicas = [
        changed(each, is_whole=True, votes=each.votes or order.action is Action.PROMOTE)
        for each in group.replicas
        if not (order.action is Action.REMOVE and each.replica == order.replica)
    ]
    apply_change(table.placement, ConfirmGroup(order.group, group.version + 1, tuple(replicas)))


def settle(table: PlacementTable, planner: PlacementPlanner, now_ms: int) -> int:
    """Until nothing is to be done: how many looks that took."""
    looks = 0
    while True:
        planned = planner.look(now_ms)
        looks += 1
        for change in planned.changes:
            apply_change(table.placement, change)
        for order in planned.orders:
            carry_out(table, order)
        if not (planned.changes or planned.orders):
            return looks


def one_round(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one cluster."""
    found: dict[str, Any] = {}
    found["place_ms"], (table, limits) = timed(lambda: make_table(options))
    found["groups"], found["apart_new"] = len(table.groups), apart(table)
    planner = PlacementPlanner(table, limits)
    settle(table, planner, 0)
    found["quiet_ms"], _ = timed(lambda: planner.look(1))
    lost = table.members[options.members // 2]
    table.put_member(replace(lost, silent_since_ms=0))
    found["plan_ms"], _ = timed(lambda: planner.look(LOST_MS))
    found["tasks"] = len(planner.needs)
    other = PlacementPlanner(table, limits)
    found["first_ms"], _ = timed(lambda: other.look(LOST_MS))
    found["all_ms"], found["looks"] = timed(lambda: settle(table, other, LOST_MS))
    found["apart_after_loss"] = apart(table)
    table.put_member(PlacedMember(options.members, "new", lost.rack))
    found["plan_new_ms"], _ = timed(lambda: other.look(LOST_MS))
    found["moves_to_new"] = len(other.needs)
    settle(table, other, LOST_MS)
    found["apart_after_new"] = apart(table)
    return found


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = ("plan", "throughput", "idle")
    parser.add_argument("--what", choices=what, default=what[0])
    for name, value in (("members", 50), ("racks", 1), ("megabytes", 100), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 3, 6])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.what == "throughput":
        how_much = options.megabytes, options.rounds, options.nodes
        live_groups.show(live_groups.throughput(options.counts, *how_much))
    elif options.what == "idle":
        groups, partitions = options.groups or 200, options.partitions or 10_000
        live_groups.show(live_groups.idle(groups, partitions, options.seconds, options.nodes))
    else:
        options.groups, options.partitions = options.groups or 1000, options.partitions or 20_000
        plan(options)


def plan(options: argparse.Namespace) -> None:
    """The part in memory."""
    rounds = [one_round(options) for _ in range(options.rounds)]
    found = {name: round(median(each[name] for each in rounds), 1) for name in rounds[0]}
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:18} {value:10.1f}")


if __name__ == "__main__":
    main()
