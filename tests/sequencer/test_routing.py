"""From which group a member serves a partition."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from samelog.placement.values import PlacedReplica
from samelog.replicator.interfaces import HeldElsewhere, RequestRefused
from samelog.replicator.watchers import Watchers
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.data_groups.routing import RoutedLogs
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.topics import CreateTopicCommand, Topic
from samelog.wire.errors import FaultCode
from tests.sequencer.test_ending import TOPIC, data_group, group_0
from tests.sequencer.test_group_resets import begin_anew


class Source:
    """Says what it is asked for."""

    def open_merged(self, *asked: object) -> object:
        return asked


def test_a_log_that_begins_anew_is_not_read_before_its_group_has_done_so() -> None:
    cluster, group = group_0(), data_group()
    logs = SimpleNamespace(machine=group, source=Source())
    replica = SimpleNamespace(group_replica=SimpleNamespace(logs=logs))
    held = {1: replica}
    group_of = cluster.state.placement.group_of
    groups: Any = SimpleNamespace(
        holding=lambda number: held.get(group_of(number)), holders=lambda number, **_: []
    )
    anything: Any = None
    routed: Any = RoutedLogs(anything, cluster, groups, anything)
    assert routed.open_merged("t", TOPIC, 0) == ("t", TOPIC, 0)
    with pytest.raises(HeldElsewhere):
        routed.open_merged("t", TOPIC, 1)
    cluster.apply(HardReset("r1", 1, 1))
    new = cluster.state.topics.by_id[TOPIC].log_id
    for log_id in (TOPIC, new):
        with pytest.raises(RequestRefused) as refused:
            routed.open_merged("t", log_id, 0)
        assert refused.value.code is FaultCode.NOT_READY
    begin_anew(group, cluster)
    assert routed.open_merged("t", new, 0) == ("t", new, 0)


def test_publishers_bring_nothing_to_a_replica_that_only_reads() -> None:
    """They are sent to those that vote; readers are sent to both."""
    cluster = group_0()
    cluster.state.members.by_number[1] = Member(1, "b", "b:1", "y", voter=False)
    table, number = cluster.state.placement, cluster.state.topics.by_id[TOPIC].partition_numbers[0]
    group = table.groups[table.group_of(number)]
    only_reads = PlacedReplica(1, 99, votes=False)
    table.groups[group.number] = msgspec.structs.replace(group, readers=(only_reads,))
    anything: Any = SimpleNamespace(
        _host=SimpleNamespace(cluster=cluster.state), _presence=SimpleNamespace(number=1)
    )
    assert [each.name for each in DataGroups.holders(anything, number)] == ["a"]
    to_read = DataGroups.holders(anything, number, to_read=True)
    assert [each.name for each in to_read] == ["a", "b"]
    anything.holding = lambda number: SimpleNamespace()
    anything.is_to_come = lambda number: DataGroups.is_to_come(anything, number)
    anything.holders = lambda number: DataGroups.holders(anything, number)
    with pytest.raises(HeldElsewhere):
        open_input(cluster, anything, "t")


def test_where_a_site_only_reads_nobody_takes_what_publishers_bring() -> None:
    """They are sent to the voters of group 0, who have such topics."""
    cluster, anything = group_0(), cast(Any, None)
    cluster.state.members.by_number[1] = Member(1, "b", "b:1", "y", voter=False)
    open_input(cluster, anything, "own")
    sites = cluster.state.placement.sites
    sites.votes, sites.members = {"nyc": False}, {1: "nyc"}
    with pytest.raises(HeldElsewhere) as refused:
        open_input(cluster, anything, "own")
    assert [each.name for each in refused.value.holders] == ["a"]
    sites.votes["nyc"] = True
    open_input(cluster, anything, "own")


def open_input(cluster: StateMachine, groups: Any, topic: str) -> None:
    """At member 1, by a publisher."""

    async def opened(**asked: object) -> None:
        """Group 0 takes it."""

    async def check_topic(topic_id: str | None) -> None:
        """It is there."""

    async def find_topic(name: str, partition: int) -> Topic:
        cluster.apply(CreateTopicCommand("f" * 32, name, partition + 1, {}, 0))
        found = cluster.state.topics.named(name)
        assert found is not None
        return found

    own: Any = SimpleNamespace(
        find_topic=find_topic,
        open_run=None,
        open_topic=None,
        end_run=None,
        open_input=opened,
        check_session=None,
        check_topic=check_topic,
        watchers=Watchers(),
    )
    intake = RoutedIntake(own, cluster, groups, Presence(1))
    asked: Any = {"identity": "", "session": "s", "run_id": "", "partition": 0}
    asyncio.run(intake.open_input(topic=topic, **asked))
