"""From which group a member serves a partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samelog.replicator.interfaces import HeldElsewhere, RequestRefused
from samelog.sequencer.data_groups.routing import RoutedLogs
from samelog.sequencer.levels import GROUP_RECOVERY
from samelog.sequencer.state.reset_commands import HardReset
from samelog.wire.errors import FaultCode
from tests.sequencer.test_ending import TOPIC, data_group, group_0
from tests.sequencer.test_group_resets import begin_anew


class Source:
    """Says what it is asked for."""

    def open_merged(self, *asked: object) -> object:
        return asked


def test_a_log_that_begins_anew_is_not_read_before_its_group_has_done_so() -> None:
    cluster, group = group_0(), data_group()
    cluster.state.level = GROUP_RECOVERY
    logs = SimpleNamespace(machine=group, source=Source())
    replica = SimpleNamespace(group_replica=SimpleNamespace(logs=logs))
    held = {1: replica}
    group_of = cluster.state.placement.group_of
    groups: Any = SimpleNamespace(
        holding=lambda number: held.get(group_of(number)), holders=lambda number: []
    )
    anything: Any = None
    routed: Any = RoutedLogs(anything, cluster, groups, anything)
    assert routed.open_merged("t", TOPIC, 0) == ("t", TOPIC, 0)
    with pytest.raises(HeldElsewhere):
        routed.open_merged("t", TOPIC, 1)
    cluster.apply(HardReset("r1", 1, 1))
    new = cluster.state.topics[TOPIC].log_id
    for log_id in (TOPIC, new):
        with pytest.raises(RequestRefused) as refused:
            routed.open_merged("t", log_id, 0)
        assert refused.value.code is FaultCode.NOT_READY
    begin_anew(group, cluster)
    assert routed.open_merged("t", new, 0) == ("t", new, 0)
