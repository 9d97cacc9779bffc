"""Compactions that do not go on as they should: what is gone meanwhile, refused, stuck, or waited
for; and what rounds cost where nothing is new.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from samelog.archiver.compaction import GIVEN_UP_AFTER_MS
from samelog.archiver.compaction_progress import PATIENCE_S
from samelog.format.compaction import CompactedSegment
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.compaction import compactor, ordering
from samelog.sequencer.node import Node
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.command_base import Rejection
from samelog.store.merged.rewriting import Rewriting
from samelog.store.merged.truncation import truncate_segments
from tests.sequencer.cluster import RunWith, until
from tests.sequencer.test_compactor import (
    NUMBER,
    compact,
    compactions_of,
    decide,
    folders,
    is_compacted,
    log_of,
    publish,
    room_of,
)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are made by the tests alone."""
    monkeypatch.setattr(compactor, "INTERVAL_S", 1e6)


async def order(node: Node) -> None:
    """One that cannot be carried out, for want of room."""
    await publish(node)
    room_of(node, 100)
    await compact(node, lambda node: compactions_of(node).order is not None)


def delete_topic(node: Node) -> None:
    """As if that was applied just now."""
    state = node.logs.machine.state
    state.partitions.by_number.clear()
    state.topics.by_id.clear()


class Threads:
    """Lets something happen while the n-th piece of work is done in a thread."""

    def __init__(self, node: Node, left: int) -> None:
        self._node, self.left = node, left
        self._in_thread = node.care.compactor._parts.in_thread

    async def __call__(self, work: Any, /, *arguments: Any) -> Any:
        """Do it."""
        result = await self._in_thread(work, *arguments)
        self.left -= 1
        if self.left == 0:
            delete_topic(self._node)
        return result


@pytest.mark.parametrize("step", range(1, 6))
def test_a_topic_may_go_at_any_moment(tmp_path: Path, step: int, run_with: RunWith) -> None:
    """And what is remembered of its partitions goes, too."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        care = nodes[0].care.compactor
        threads = Threads(nodes[0], step)
        care._parts = replace(care._parts, in_thread=threads)
        care._waits[7] = 3
        await compact(nodes[0], lambda node: threads.left <= 0)
        await care.look()
        assert (care._waits, care._settled, care._parts.orders._closed) == ({}, {}, {})

    run_with(tmp_path, 1, body)


def test_what_is_ordered_no_more_is_not_gone_on_with(tmp_path: Path, run_with: RunWith) -> None:
    """Its segments may be archived: that is no damage."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        original, steps = Rewriting.step, 0

        def step(work: Rewriting) -> int:
            nonlocal steps
            steps += 1
            if steps == 2:
                compactions_of(nodes[0]).forget_below(0)
                truncate_segments(work._fs, log_of(nodes[0]).path, [0, 2])
            return original(work)

        with patch.object(Rewriting, "step", step):
            await compact(nodes[0], lambda node: steps >= 2)
        assert steps == 2
        assert not nodes[0].logs.merging.partitions[NUMBER].suspects
        assert not folders(nodes[0])

    run_with(tmp_path, 1, body)


def test_archiving_waits_for_a_compaction_that_goes_on(tmp_path: Path, run_with: RunWith) -> None:
    """However long ago it was ordered; but not for one that does not."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 100)
        topic = next(iter(nodes[0].logs.machine.state.topics.by_id.values()))
        topic.settings.update({"cleanup.policy": "compact,delete", "retention.ms": "1"})
        with patch.object(nodes[0].care.compactor._parts.orders, "now_ms", lambda: 1):
            await compact(nodes[0], lambda node: compactions_of(node).order is not None)
        here = nodes[0].logs.merging.partitions[NUMBER]
        await nodes[0].care.compactor.look_at(NUMBER)
        rounds = nodes[0].care.archive.rounds
        await until(lambda: bool(rounds.plan().proposals), "something is old")
        with patch.object(RaftGroup, "propose") as proposed:
            await rounds.round()
            assert not proposed.called
        assert here.compaction is not None
        here.compaction.moved_at -= PATIENCE_S
        await rounds.round()
        await until(lambda: log_of(nodes[0]).log_start.segment == 4, "archived")

    run_with(tmp_path, 1, body)


def test_archiving_has_its_turn_between_two_compactions(tmp_path: Path, run_with: RunWith) -> None:
    """Where one order follows the other, rounds of archiving met one each time."""

    async def body(nodes: list[Node]) -> None:
        [node] = nodes
        await publish(node)
        room_of(node, 1 << 20)
        topic = next(iter(node.logs.machine.state.topics.by_id.values()))
        topic.settings.update({"cleanup.policy": "compact,delete", "retention.ms": "1"})
        rounds, orders = node.care.archive.rounds, node.care.compactor._parts.orders
        merged = node.logs.merging.partitions[NUMBER]
        known = node.logs.machine.state.partitions.by_number[NUMBER]
        with patch.object(rounds, "start_soon") as begun:
            await compact(node, lambda node: compactions_of(node).order is not None)
            await until(lambda: bool(rounds.plan().proposals), "something is old")
            await rounds.round()
            await compact(node)
            log_of(node).roll()
            begun.reset_mock()
            assert not orders._is_free(merged, known, [0], 0)
            begun.assert_called_once()
        await rounds.round()
        await until(lambda: log_of(node).log_start.segment > 0, "archived")
        assert orders._is_free(merged, known, [0], 0)

    run_with(tmp_path, 1, body)


def test_what_does_not_end_is_ordered_anew(tmp_path: Path, run_with: RunWith) -> None:
    """After an hour in which nothing moved: words that never agree may agree then."""

    async def body(nodes: list[Node]) -> None:
        await order(nodes[0])
        care, here = nodes[0].care.compactor, nodes[0].logs.merging.partitions[NUMBER]
        await care.look_at(NUMBER)
        assert compactions_of(nodes[0]).number == 1
        now_ms = care._parts.orders.now_ms
        with patch.object(care._parts.orders, "now_ms", lambda: now_ms() + GIVEN_UP_AFTER_MS):
            await care.look_at(NUMBER)
            assert here.compaction is not None
            here.compaction.moved_at -= PATIENCE_S
            with patch.object(RaftGroup, "propose") as proposed:
                await care.look_at(NUMBER)
            assert proposed.called
            await compact(nodes[0], lambda node: compactions_of(node).number == 2)
        room_of(nodes[0], 1 << 20)
        await compact(nodes[0], lambda node: log_of(node).generations.number == 2)

    run_with(tmp_path, 1, body)


def test_a_word_that_is_refused_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await order(nodes[0])
        room_of(nodes[0], 1 << 20)
        care = nodes[0].care.compactor
        refused = AsyncMock(return_value=Rejection("TOO_LARGE", "a megabyte too much"))
        with patch.object(Proposer, "propose", refused), caplog.at_level(logging.WARNING):
            await care.look()
            await care.look()
        assert refused.await_count == 1
        assert "a megabyte too much" in caplog.text
        assert care._waits == {NUMBER: compactor.ROUNDS_BETWEEN_TRIES - 1}

    run_with(tmp_path, 1, body)


class Looked(list[CompactedSegment]):
    """Counts who goes through it."""

    times = 0

    def __iter__(self) -> Iterator[CompactedSegment]:
        self.times += 1
        return super().__iter__()


def test_where_nothing_is_new_segments_are_not_looked_at(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        await compact(nodes[0], lambda node: is_compacted(node) and not folders(node))
        known = compactions_of(nodes[0])
        known.segments = looked = Looked(known.segments)
        with patch.object(ordering, "rolled_ms") as rolled:
            for _ in range(5):
                await nodes[0].care.compactor.look_at(NUMBER)
        assert looked.times == 1
        assert not rolled.called
        known.segments = Looked(known.segments[:-1])
        await nodes[0].care.compactor.look_at(NUMBER)
        assert known.segments.times == 1

    run_with(tmp_path, 1, body)


def test_segments_are_fetched_no_faster_than_may_be(tmp_path: Path, run_with: RunWith) -> None:
    """As all that is copied from peers."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        await decide(nodes[0])
        log_of(nodes[0]).generations.written.clear()
        pull = AsyncMock()
        pieces = nodes[0].logs.repair.pieces
        with (
            patch.object(PieceRepair, "_pull_from", PieceRepair._pull_from),
            patch.object(pieces, "_ask", lambda: [1]),
            patch.object(pieces._pulls, "get", lambda peer: pull),
        ):
            await nodes[0].care.compactor.look_at(NUMBER)
        assert pull.merged.await_args.kwargs["budget"] is pieces._budget

    run_with(tmp_path, 1, body)
