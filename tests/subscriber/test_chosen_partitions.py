"""Subscribers of some partitions: those that a topic has end, and others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.subscriber import UnknownTopic
from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S
from tests.publisher.nodes import running
from tests.replicator.fake_source import FakeSource
from tests.subscriber.merged import numbers
from tests.subscriber.test_copying import Copying, copying, read


@pytest.mark.parametrize("replay", [None, 1000.0])
def test_a_partition_that_the_topic_does_not_have_is_named(
    tmp_path: Path, replay: float | None
) -> None:
    with (
        copying(tmp_path, 10) as made,
        made.subscriber(partitions=[5], follow=False, replay=replay) as subscriber,
        pytest.raises(UnknownTopic, match=r"^'flights' has 1 partition, no partition 5$"),
    ):
        subscriber.batch(timeout=PATIENCE_S)


def test_a_follower_waits_for_a_partition_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with copying(tmp_path, 10) as made, made.subscriber(partitions=[0, 5]) as subscriber:
        assert read(subscriber, 10) == numbers(0, 10)

        def has_warned() -> bool:
            subscriber.batch(timeout=0.1)
            return "'flights' has 1 partition, no partition 5; it is read once" in caplog.text

        wait_for(has_warned, "the warning")


def test_one_partition_of_several_ends_where_it_ends(tmp_path: Path) -> None:
    source = FakeSource(tmp_path / "node", partitions=2)
    with running(tmp_path, source=source) as nodes:
        made = Copying(tmp_path, nodes, source)
        made.merge(0, 10)
        with made.subscriber(partitions=[0], follow=False) as subscriber:
            found = subscriber.batch(10, timeout=PATIENCE_S)
            assert [record.value for record in found] == numbers(0, 10)
            assert subscriber.batch(timeout=PATIENCE_S) == []
            assert subscriber.is_over
