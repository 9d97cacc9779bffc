"""When a node acknowledges what came over a push connection: the rules that scenarios do not reach
(tests/replicator/scenarios/push_receiver_acks.txt).
"""

from __future__ import annotations

from operator import ge

from hypothesis import given
from hypothesis import strategies as st

from samelog.wire.messages import Ack
from samelog.wire.push.acks import ACK_GAP_S, Acknowledgements
from samelog.wire.push.effects import ProgressTold

HANDLE = 3


def at(durable: int, acknowledged: int = 0, merged: int = 0) -> ProgressTold:
    return ((0, durable), (0, acknowledged), (0, merged))


def opened() -> Acknowledgements:
    acks = Acknowledgements()
    acks.open(HANDLE)
    return acks


def ack(durable: int, acknowledged: int = 0, merged: int = 0) -> Ack:
    return Ack(HANDLE, 0, durable, 0, acknowledged, 0, merged)


def test_what_is_only_durable_waits_for_its_commitment() -> None:
    acks = opened()
    assert acks.reached(HANDLE, at(5), 1.0)
    assert acks.due_at == 1.0 + ACK_GAP_S
    assert acks.reached(HANDLE, at(5, 5), 1.001), "it is told at once"
    assert acks.due_at == 1.001
    assert not acks.reached(HANDLE, at(6, 6), 1.001), "together with what is due"
    assert acks.take(1.001) == [ack(6, 6)]
    assert acks.due_at is None


def test_news_that_do_not_stop_are_told_now_and_then() -> None:
    acks = opened()
    acks.reached(HANDLE, at(1, 1), 1.0)
    acks.take(1.0)
    assert acks.reached(HANDLE, at(2, 2), 1.001)
    assert acks.due_at == 1.001 + ACK_GAP_S
    assert not acks.reached(HANDLE, at(3, 3), 1.002)
    assert acks.reached(HANDLE, at(4, 4), 1.0 + ACK_GAP_S), "long enough after the last one"
    assert acks.due_at == 1.0 + ACK_GAP_S


def test_old_news_is_no_news() -> None:
    acks = opened()
    acks.reached(HANDLE, at(9, 7), 1.0)
    acks.take(1.0)
    assert not acks.reached(HANDLE, at(8, 7), 2.0)
    assert not acks.reached(HANDLE, at(9, 2), 2.0)
    assert acks.due_at is None
    assert acks.take(2.0) == []


def test_nothing_is_told_of_a_handle_that_was_let_go() -> None:
    acks = opened()
    acks.open(4)
    acks.reached(HANDLE, at(1), 1.0)
    acks.reached(4, at(1), 1.0)
    acks.forget(4)
    assert acks.take(2.0) == [ack(1)]


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3, st.floats(0, 0.01)), max_size=30))
def test_acknowledgements_never_go_back_and_in_the_end_all_is_told(
    moves: list[tuple[int, int, int, float]],
) -> None:
    acks, now, told = opened(), 1.0, ack(0)
    for durable, acknowledged, merged, later_s in moves:
        now += later_s
        if acks.due_at is not None and now >= acks.due_at:
            for message in acks.take(now):
                assert message != told
                assert all(map(ge, _positions(message), _positions(told)))
                told = message
        acks.reached(HANDLE, at(durable, acknowledged, merged), now)
        assert acks.due_at is None or acks.due_at <= now + ACK_GAP_S
    for message in acks.take(now + 1):
        told = message
    durable, acknowledged, merged = (
        max((0, *(int(move[place]) for move in moves))) for place in range(3)
    )
    assert told == ack(durable, acknowledged, merged)


def _positions(message: Ack) -> tuple[int, int, int]:
    return message.durable_byte, message.acknowledged_byte, message.merged_byte
