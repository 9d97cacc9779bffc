"""What a sender does next: turns, window, files' ends, and what acknowledgements free."""

from __future__ import annotations

import pytest

from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.sender import ReadRange, Seal, Sender


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
