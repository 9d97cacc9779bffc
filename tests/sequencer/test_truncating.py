"""A partition is emptied: everything that is in it, and nothing that is not merged."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from samelog.admin.requests import TruncatePartition
from samelog.archiver.command import ArchiveCommand
from samelog.sequencer.admin import topics
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import CreateTopicCommand

WHO = "samelog://user/admin"


class Served:
    """A node with one topic, whose records are committed up to 9."""

    def __init__(self, merged: int) -> None:
        machine = StateMachine()
        machine.apply(CreateTopicCommand("t", "t", 1, {}, 1))
        machine.state.partitions.by_number[1].next_offset = 9
        self.proposed: list[ArchiveCommand] = []

        async def propose(command: ArchiveCommand) -> Any:
            self.proposed.append(command)
            return machine.apply(command)

        async def catch_up() -> None:
            pass

        self.cursors = {1: merged}
        self.logs = SimpleNamespace(machine=machine)
        self.raft = SimpleNamespace(
            proposer=SimpleNamespace(propose=propose, catch_up=catch_up),
            coordinator=SimpleNamespace(cursors=self.cursors),
        )
        self.member = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 5))


async def truncate(node: Served) -> int:
    request = TruncatePartition("t", 0, confirm="t")
    return (await topics.truncate_partition(cast(Any, node), request, WHO)).log_start


def test_everything_is_archived_and_who_wanted_it_is_said() -> None:
    node = Served(merged=9)
    assert asyncio.run(truncate(node)) == 9
    [command] = node.proposed
    assert (command.offset, command.reason) == (9, f"truncated by {WHO}")
    assert node.logs.machine.state.partitions.by_number[1].log_start == 9
    assert asyncio.run(truncate(node)) == 9
    assert len(node.proposed) == 1


def test_what_is_not_merged_is_waited_for() -> None:
    async def body() -> None:
        node = Served(merged=4)
        asked = asyncio.create_task(truncate(node))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert node.proposed == []
        node.cursors[1] = 9
        assert await asked == 9

    asyncio.run(body())


def test_what_is_never_merged_is_not_emptied() -> None:
    node = Served(merged=4)
    with patch.object(topics, "MERGED_S", 0.05), pytest.raises(TimeoutError):
        asyncio.run(truncate(node))
    assert node.proposed == []
