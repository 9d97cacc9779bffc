"""What waits on the two connections to a member: urgent first, each group by its own credit."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.wire.errors import FrameError
from samelog.wire.frames import HEADER_BYTES
from samelog.wire.member_queues import (
    CONTROL_FRAME_BYTES,
    GROUP_BYTES,
    OTHER_BYTES,
    URGENT_BYTES,
    ControlQueue,
    GroupQueues,
)


def test_what_is_urgent_leaves_first() -> None:
    queue = ControlQueue()
    for frame, urgent in ((b"report", False), (b"beat 1", True), (b"append", False)):
        assert queue.put(frame, urgent=urgent)
    assert queue.put(b"beat 2", urgent=True)
    assert [queue.take() for _ in range(4)] == [b"beat 1", b"beat 2", b"report", b"append"]
    assert not queue


def test_what_is_long_has_no_place_on_a_control_connection() -> None:
    queue = ControlQueue()
    assert queue.put(bytes(HEADER_BYTES + CONTROL_FRAME_BYTES), urgent=False)
    with pytest.raises(FrameError, match="65537 bytes on a control connection"):
        queue.put(bytes(HEADER_BYTES + CONTROL_FRAME_BYTES + 1), urgent=False)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60_000)), max_size=80))
def test_a_full_queue_drops_and_keeps_room_for_what_is_urgent(
    frames: list[tuple[bool, int]],
) -> None:
    queue, kept = ControlQueue(), {True: deque[bytes](), False: deque[bytes]()}
    limits = {True: URGENT_BYTES, False: OTHER_BYTES}
    for number, (urgent, size) in enumerate(frames):
        frame = number.to_bytes(4, "big") + bytes(size)
        fits = sum(map(len, kept[urgent])) + len(frame) <= limits[urgent]
        assert queue.put(frame, urgent=urgent) is fits
        if fits:
            kept[urgent].append(frame)
        if number % 3 == 2:
            assert queue.take() == (kept[True] or kept[False]).popleft()
    while queue:
        assert queue.take() == (kept[True] or kept[False]).popleft()
    assert not kept[True]
    assert not kept[False]


def test_groups_take_turns_and_each_keeps_its_order() -> None:
    queues = GroupQueues()
    for group, frame in ((1, b"1a"), (1, b"1b"), (1, b"1c"), (2, b"2a"), (3, b"3a"), (2, b"2b")):
        assert queues.put(group, frame)
    assert [queues.take() for _ in range(6)] == [b"1a", b"2a", b"3a", b"1b", b"2b", b"1c"]
    assert not queues


def test_a_group_that_has_used_its_credit_takes_none_of_another() -> None:
    queues, half = GroupQueues(), bytes(GROUP_BYTES // 2)
    assert [queues.put(1, half) for _ in range(3)] == [True, True, False]
    assert [queues.put(2, half) for _ in range(3)] == [True, True, False]
    queues.take()
    assert not queues.put(2, half)
    assert queues.put(1, half)


def test_a_frame_above_the_credit_goes_alone() -> None:
    queues, long = GroupQueues(), bytes(GROUP_BYTES + 1)
    assert queues.put(1, long)
    assert not queues.put(1, b"more")
    assert queues.take() == long
    assert queues.put(1, b"more")
    queues.clear()
    assert not queues
    assert queues.put(1, long)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, GROUP_BYTES)), max_size=40))
def test_no_group_waits_for_more_than_one_frame_of_each_other(
    frames: list[tuple[int, int]],
) -> None:
    queues, waiting = GroupQueues(), dict[int, deque[bytes]]()
    for group, size in frames:
        frame = bytes([group]) + bytes(size)
        mine = waiting.setdefault(group, deque())
        fits = not mine or sum(map(len, mine)) + len(frame) <= GROUP_BYTES
        assert queues.put(group, frame) is fits
        if fits:
            mine.append(frame)
    since = Counter[int]()
    while queues:
        frame = queues.take()
        assert frame == waiting[frame[0]].popleft()
        for group, left in waiting.items():
            since[group] = 0 if group == frame[0] or not left else since[group] + 1
            assert since[group] < 4
    assert not any(waiting.values())
