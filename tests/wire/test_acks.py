"""When a node acknowledges what came over a push connection: the rules that scenarios do not reach
(tests/replicator/scenarios/push_receiver_acks.txt).
"""

from __future__ import annotations

from operator import ge

from hypothesis import given
from hypothesis import strategies as st

from samelog.wire.bounds import ACKS_TOLD, Ack
from samelog.wire.messages import Acks
from samelog.wire.push.acks import ACK_GAP_S, LATER_S, SOON_BYTES, Acknowledgements
from samelog.wire.push.effects import ProgressTold

CHANNEL, HANDLE = 7, 3


def at(durable: int, acknowledged: int = 0, merged: int = 0) -> ProgressTold:
    return ((0, durable), (0, acknowledged), (0, merged))


def opened() -> Acknowledgements:
    acks = Acknowledgements()
    acks.open(CHANNEL, HANDLE)
    return acks


def ack(durable: int, acknowledged: int = 0, merged: int = 0) -> Ack:
    return Ack(CHANNEL, HANDLE, 0, durable, 0, acknowledged, 0, merged)


def taken(acks: Acknowledgements, now: float) -> list[Ack]:
    return [each for message in acks.take(now) for each in message.acks]


def test_what_is_only_durable_waits_for_its_commitment() -> None:
    acks = opened()
    assert acks.reached(CHANNEL, HANDLE, at(5), 1.0)
    assert acks.due_at == 1.0 + ACK_GAP_S
    assert acks.reached(CHANNEL, HANDLE, at(5, 5), 1.001), "it is told at once"
    assert acks.due_at == 1.001
    assert not acks.reached(CHANNEL, HANDLE, at(6, 6), 1.001), "together with what is due"
    assert acks.take(1.001) == [Acks((ack(6, 6),))]
    assert acks.due_at is None


def test_news_that_do_not_stop_are_told_now_and_then() -> None:
    acks = opened()
    acks.reached(CHANNEL, HANDLE, at(1, 1), 1.0)
    acks.take(1.0)
    assert acks.reached(CHANNEL, HANDLE, at(2, 2), 1.001)
    assert acks.due_at == 1.001 + ACK_GAP_S
    assert not acks.reached(CHANNEL, HANDLE, at(3, 3), 1.002)
    later = 1.0 + ACK_GAP_S
    assert acks.reached(CHANNEL, HANDLE, at(4, 4), later), "long enough after the last one"
    assert acks.due_at == later


def test_old_news_is_no_news() -> None:
    acks = opened()
    acks.reached(CHANNEL, HANDLE, at(9, 7), 1.0)
    acks.take(1.0)
    assert not acks.reached(CHANNEL, HANDLE, at(8, 7), 2.0)
    assert not acks.reached(CHANNEL, HANDLE, at(9, 2), 2.0)
    assert acks.due_at is None
    assert acks.take(2.0) == []


def test_nothing_is_told_of_a_handle_that_was_let_go() -> None:
    acks = opened()
    acks.open(CHANNEL, 4)
    acks.reached(CHANNEL, HANDLE, at(1), 1.0)
    acks.reached(CHANNEL, 4, at(1), 1.0)
    acks.forget(CHANNEL, 4)
    assert acks.take(2.0) == [Acks((ack(1),))]


def test_sessions_share_a_message() -> None:
    acks = opened()
    acks.open(8, 0)
    acks.reached(8, 0, at(2), 1.0)
    acks.reached(CHANNEL, HANDLE, at(5, 5), 1.0)
    assert acks.take(1.0) == [Acks((Ack(8, 0, 0, 2, 0, 0, 0, 0), ack(5, 5)))]
    assert acks.due_at is None


def test_a_session_that_ends_leaves_nothing_behind() -> None:
    acks = opened()
    acks.open(8, 0)
    acks.reached(8, 0, at(2), 1.0)
    acks.reached(CHANNEL, HANDLE, at(5), 1.0)
    acks.close(8)
    assert acks.take(2.0) == [Acks((ack(5),))]


def test_what_precedes_other_messages_of_a_session_is_taken_with_it() -> None:
    acks = opened()
    acks.open(8, 0)
    acks.reached(8, 0, at(2), 1.0)
    acks.reached(CHANNEL, HANDLE, at(5), 1.0)
    assert acks.take_channel(CHANNEL) == [Acks((ack(5),))]
    assert acks.take_channel(CHANNEL) == []
    assert taken(acks, 2.0) == [Ack(8, 0, 0, 2, 0, 0, 0, 0)]


def test_what_the_leader_tells_waits_or_goes_with_the_next_message() -> None:
    acks = opened()
    acks.open(8, 0)
    assert acks.reached(CHANNEL, HANDLE, at(5, 5, 5), 1.0, can_wait=True)
    assert acks.due_at == 1.0 + LATER_S
    assert not acks.reached(CHANNEL, HANDLE, at(6, 6, 6), 1.01, can_wait=True)
    assert acks.due_at == 1.0 + LATER_S, "the first position waits no longer"
    assert acks.reached(8, 0, at(1, 1), 1.02)
    assert taken(acks, 1.02) == [ack(6, 6, 6), Ack(8, 0, 0, 1, 0, 1, 0, 0)]


def test_room_in_the_window_does_not_wait_for_long() -> None:
    acks = opened()
    acks.reached(CHANNEL, HANDLE, at(SOON_BYTES - 1), 1.0, can_wait=True)
    assert acks.due_at == 1.0 + LATER_S
    assert acks.reached(CHANNEL, HANDLE, at(SOON_BYTES), 1.01, can_wait=True)
    assert acks.due_at == 1.01 + ACK_GAP_S
    acks.take(1.02)
    assert acks.reached(CHANNEL, HANDLE, ((1, 0), (0, 0), (0, 0)), 1.03, can_wait=True)
    assert acks.due_at == 1.03 + ACK_GAP_S, "another file"


def test_a_message_has_a_bounded_number_of_positions() -> None:
    acks = Acknowledgements()
    for handle in range(ACKS_TOLD + 1):
        acks.open(CHANNEL, handle)
        acks.reached(CHANNEL, handle, at(1), 1.0)
    assert [len(message.acks) for message in acks.take(2.0)] == [ACKS_TOLD, 1]


MOVES = st.tuples(*[st.integers(0, 9)] * 3, st.floats(0, 0.01), st.booleans())


@given(st.lists(MOVES, max_size=30))
def test_acknowledgements_never_go_back_and_in_the_end_all_is_told(
    moves: list[tuple[int, int, int, float, bool]],
) -> None:
    acks, now, told = opened(), 1.0, ack(0)
    for durable, acknowledged, merged, later_s, can_wait in moves:
        now += later_s
        if acks.due_at is not None and now >= acks.due_at:
            for message in taken(acks, now):
                assert message != told
                assert all(map(ge, _positions(message), _positions(told)))
                told = message
        places = at(durable, acknowledged, merged)
        acks.reached(CHANNEL, HANDLE, places, now, can_wait=can_wait)
        assert acks.due_at is None or acks.due_at <= now + LATER_S
    for message in taken(acks, now + 1):
        told = message
    durable, acknowledged, merged = (
        max((0, *(int(move[place]) for move in moves))) for place in range(3)
    )
    assert told == ack(durable, acknowledged, merged)


def _positions(message: Ack) -> tuple[int, int, int]:
    return message.durable_byte, message.acknowledged_byte, message.merged_byte
