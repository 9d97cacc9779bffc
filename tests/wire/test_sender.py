"""What a sender does next: turns, window, files' ends, and what acknowledgements free."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.frames import PART_BYTES
from samelog.wire.sender import FIRST_BYTES, ReadRange, Seal, Sender, SharedWindow


def new_sender(window_bytes: int = 1000, read_bytes: int = 100) -> Sender:
    return Sender(window_bytes=window_bytes, read_bytes=read_bytes)


def send_next(sender: Sender) -> ReadRange | Seal | None:
    """Do what is next, in full."""
    step = sender.next_read()
    if isinstance(step, ReadRange):
        sender.sent(step.handle, step.limit_bytes)
    return step


def test_reads_are_bounded_and_contiguous() -> None:
    sender = new_sender()
    sender.add(1, 0, 50)
    sender.available(1, 0, 270)
    assert [send_next(sender) for _ in range(4)] == [
        ReadRange(1, 0, 50, 100),
        ReadRange(1, 0, 150, 100),
        ReadRange(1, 0, 250, 20),
        None,
    ]
    assert sender.in_flight_bytes == 220
    assert sender.position(1) == (0, 270)


def test_nothing_is_sent_before_it_is_there() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    assert sender.next_read() is None
    sender.available(1, 1, 100)
    assert sender.next_read() is None


def test_a_sealed_file_is_followed_by_the_next() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 10, next_file=1)
    sender.available(1, 1, 5)
    assert [send_next(sender) for _ in range(4)] == [
        ReadRange(1, 0, 0, 10),
        Seal(1, 0, 10, 1),
        ReadRange(1, 1, 0, 5),
        None,
    ]


def test_an_empty_file_can_be_sealed() -> None:
    sender = new_sender()
    sender.add(1, 3, 0)
    sender.available(1, 3, 0, next_file=4)
    assert send_next(sender) == Seal(1, 3, 0, 4)
    assert sender.position(1) == (4, 0)


def test_handles_take_turns() -> None:
    sender = new_sender()
    for handle in (1, 2, 3):
        sender.add(handle, 0, 0)
        sender.available(handle, 0, 1000)
    steps = [send_next(sender) for _ in range(6)]
    assert [step.handle for step in steps if step] == [1, 2, 3, 1, 2, 3]


def test_the_window_bounds_all_handles_together() -> None:
    sender = new_sender(window_bytes=150)
    for handle in (1, 2):
        sender.add(handle, 0, 0)
        sender.available(handle, 0, 1000)
    assert send_next(sender)
    assert send_next(sender)
    assert sender.next_read() is None
    sender.acknowledged(1, 0, 100)
    assert sender.in_flight_bytes == 100
    assert send_next(sender) == ReadRange(1, 0, 100, 100)


def test_a_read_larger_than_the_window_is_not_stuck() -> None:
    sender = new_sender(window_bytes=10)
    sender.add(1, 0, 0)
    sender.available(1, 0, 100)
    assert send_next(sender) == ReadRange(1, 0, 0, 100)
    assert sender.in_flight_bytes == 100


def test_acknowledgements_free_whole_and_part() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 200, next_file=1)
    sender.available(1, 1, 100)
    for _ in range(4):
        send_next(sender)
    assert sender.in_flight_bytes == 300
    for file, byte, left in ((0, 150, 150), (0, 120, 150), (0, 200, 100), (1, 0, 100), (1, 100, 0)):
        sender.acknowledged(1, file, byte)
        assert sender.in_flight_bytes == left


def test_acknowledging_what_was_never_sent_is_a_fault() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 50)
    send_next(sender)
    for file, byte in ((0, 51), (1, 0)):
        with pytest.raises(ProtocolFault) as caught:
            sender.acknowledged(1, file, byte)
        assert caught.value.code is FaultCode.OUT_OF_RANGE


def test_a_receiver_ahead_of_its_sender_is_normal() -> None:
    sender = new_sender()
    sender.add(1, 5, 0)
    sender.acknowledged(1, 9, 100)
    assert sender.in_flight_bytes == 0


def test_a_removed_handle_frees_the_window_and_is_never_read() -> None:
    sender = new_sender()
    for handle in (1, 2):
        sender.add(handle, 0, 0)
        sender.available(handle, 0, 1000)
    send_next(sender)
    sender.remove(1)
    assert sender.in_flight_bytes == 0
    sender.acknowledged(1, 0, 100)
    steps = [send_next(sender) for _ in range(3)]
    assert {step.handle for step in steps if step} == {2}
    sender.remove(1)


def test_a_jump_leaves_out_files_that_are_gone() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 10, next_file=1)
    sender.jump(1, 4, 7)
    assert sender.next_read() is None
    sender.available(1, 2, 99)
    sender.available(1, 4, 10)
    assert send_next(sender) == ReadRange(1, 4, 7, 3)
    with pytest.raises(ValueError, match="already"):
        sender.jump(1, 4, 9)


@pytest.mark.parametrize(("end", "next_file"), [(9, None), (9, 1), (11, 1), (10, None), (10, 2)])
def test_a_sealed_file_never_changes(end: int, next_file: int | None) -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 10, next_file=1)
    with pytest.raises(ValueError, match="file 0"):
        sender.available(1, 0, end, next_file=next_file)


def test_a_growing_file_never_shrinks() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 10)
    with pytest.raises(ValueError, match="file 0"):
        sender.available(1, 0, 9)


@pytest.mark.parametrize("size_bytes", [0, -1, 11])
def test_what_was_sent_must_be_what_there_is(size_bytes: int) -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    sender.available(1, 0, 10)
    with pytest.raises(ValueError, match="bytes sent"):
        sender.sent(1, size_bytes)


def test_a_handle_is_added_once() -> None:
    sender = new_sender()
    sender.add(1, 0, 0)
    with pytest.raises(ValueError, match="already"):
        sender.add(1, 0, 0)


# --- batches in parts ----------------------------------------------------------------------------

LONG = 5 * PART_BYTES // 2


def begun(sender: Sender) -> None:
    """The batch of handle 1 is sent in parts; handle 2 has small ones."""
    for handle in (1, 2):
        sender.add(handle, 0, 0)
        sender.available(handle, 0, LONG + 50 if handle == 1 else 250)
    assert sender.next_read() == ReadRange(1, 0, 0, 100)
    assert sender.begin_part(1, LONG)
    sender.sent(1, PART_BYTES)


def test_parts_take_turns_with_what_others_have() -> None:
    sender = new_sender(window_bytes=2 * PART_BYTES)
    begun(sender)
    assert [send_next(sender) for _ in range(7)] == [
        ReadRange(2, 0, 0, 100),
        ReadRange(1, 0, PART_BYTES, PART_BYTES, is_part=True),
        ReadRange(2, 0, 100, 100),
        ReadRange(1, 0, 2 * PART_BYTES, PART_BYTES // 2, is_part=True),
        ReadRange(2, 0, 200, 50),
        ReadRange(1, 0, LONG, 50),
        None,
    ]


def test_a_batch_that_was_begun_is_finished_however_full_the_window_is() -> None:
    sender = new_sender(window_bytes=1000)
    begun(sender)
    assert sender.room_bytes == 1000 - PART_BYTES
    steps = [send_next(sender) for _ in range(3)]
    assert [step and step.handle for step in steps] == [1, 1, None]
    assert sender.room_bytes == 1000 - PART_BYTES  # of the batch, its first part counts
    sender.received(1, LONG)
    assert sender.room_bytes == 1000
    assert send_next(sender) == ReadRange(2, 0, 0, 100)


@pytest.mark.parametrize("is_pull", [False, True])
def test_what_is_acknowledged_of_parts_frees_what_they_count(is_pull: bool) -> None:
    sender = new_sender(window_bytes=PART_BYTES)
    begun(sender)
    sender.remove(2)
    for _ in range(2):
        send_next(sender)
    for done, room in ((PART_BYTES // 2, PART_BYTES // 2), (2 * PART_BYTES, PART_BYTES)):
        if is_pull:
            sender.received(1, done if done < PART_BYTES else done - PART_BYTES // 2)
        else:
            sender.acknowledged(1, 0, done)
        assert sender.room_bytes == room
    sender.remove(1)
    assert sender.in_flight_bytes == 0


def test_one_batch_at_a_time_is_sent_in_parts() -> None:
    sender = new_sender(window_bytes=100 * PART_BYTES)
    begun(sender)
    sender.available(2, 0, LONG)
    assert sender.next_read() == ReadRange(2, 0, 0, 100)
    assert not sender.begin_part(2, LONG)
    sender.available(2, 0, LONG + 1)
    assert [send_next(sender) for _ in range(2)] == [
        ReadRange(1, 0, PART_BYTES, PART_BYTES, is_part=True),
        ReadRange(1, 0, 2 * PART_BYTES, PART_BYTES // 2, is_part=True),
    ]
    assert {step.handle for step in (send_next(sender), send_next(sender)) if step} == {1, 2}


@pytest.mark.parametrize("gives_up", [Sender.remove, lambda sender, _: sender.jump(1, 1, 0)])
def test_a_batch_that_is_given_up_holds_up_no_other(
    gives_up: Callable[[Sender, int], None],
) -> None:
    sender = new_sender(window_bytes=100 * PART_BYTES)
    begun(sender)
    assert not sender.begin_part(2, 250)
    gives_up(sender, 1)
    assert send_next(sender) == ReadRange(2, 0, 0, 100)
    assert sender.begin_part(2, 150)


# --- senders that share a connection ------------------------------------------------------------


def sharing(window: SharedWindow, *ends: int) -> tuple[list[Sender], list[int]]:
    """Senders with a handle each, and the numbers of those that were called for room."""
    told: list[int] = []
    senders = []
    for number, end in enumerate(ends):
        sender = Sender(
            window_bytes=300 << 10,
            read_bytes=100 << 10,
            shared=window,
            again=partial(told.append, number),
        )
        sender.add(0, 0, 0)
        sender.available(0, 0, end)
        senders.append(sender)
    return senders, told


def send_all(sender: Sender) -> int:
    """Send as long as it may; how many bytes that were."""
    total = 0
    while isinstance(step := sender.next_read(), ReadRange):
        sender.sent(step.handle, step.limit_bytes)
        total += step.limit_bytes
    return total


def test_senders_share_the_window_of_a_connection() -> None:
    window = SharedWindow(500 << 10)
    (first, second, third), told = sharing(window, 1 << 20, 1 << 20, 1 << 20)
    assert send_all(first) == 300 << 10, "its own window"
    assert send_all(second) == 200 << 10, "the rest of the connection's"
    assert send_all(third) == FIRST_BYTES
    assert second.has_room is third.has_room is False
    assert told == []
    first.acknowledged(0, 0, 64 << 10)
    assert told == [], "that is what was sent beyond the window"
    first.acknowledged(0, 0, 300 << 10)
    assert told == [1, 2]
    assert send_all(second) == 100 << 10
    assert send_all(third) == 200 << 10


def test_a_sender_with_nothing_under_way_sends_a_first_piece() -> None:
    window = SharedWindow(300 << 10)
    (first, *others), _ = sharing(window, 1 << 20, 1 << 20, 10 << 10)
    assert send_all(first) == 300 << 10
    for sender, size in zip(others, (FIRST_BYTES, 10 << 10), strict=True):
        assert send_all(sender) == size
        assert send_all(sender) == 0
        sender.acknowledged(0, 0, size)
    assert others[0].next_read() == ReadRange(0, 0, FIRST_BYTES, FIRST_BYTES)


def test_a_sender_that_ends_gives_back_what_it_had_under_way() -> None:
    window = SharedWindow(300 << 10)
    (first, second, third), told = sharing(window, 1 << 20, 1 << 20, 1 << 20)
    send_all(first)
    send_all(second)
    send_all(third)
    third.close()
    first.close()
    assert told == [1]
    assert window.room_bytes == (300 << 10) - FIRST_BYTES
    second.close()
    assert window.room_bytes == 300 << 10


def test_a_batch_in_parts_waits_for_one_of_another_sender() -> None:
    window = SharedWindow(1 << 30)
    (first, second), told = sharing(window, 1 << 20, 1 << 20)
    assert first.begin_part(0, 200 << 10)
    assert not second.begin_part(0, 200 << 10)
    assert second.next_read() is None
    step = first.next_read()
    assert isinstance(step, ReadRange)
    assert step.is_part
    first.sent(0, step.limit_bytes)
    assert told == [1]
    assert isinstance(second.next_read(), ReadRange)
