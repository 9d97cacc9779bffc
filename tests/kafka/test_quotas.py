"""Quotas, with a clock that is moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.config.tables.kafka import ClientQuota
from samelog.kafka.clients.quotas import PAUSE_S_MAX, Allowance, Allowances

ANN = "samelog://user/ann"


def test_a_second_is_free_and_the_rest_is_waited_for() -> None:
    used = Allowance(ClientQuota(identity=ANN, producer_byte_rate=100), 0.0)
    assert used.charge(0.0, written=100) == 0
    assert used.charge(0.0, written=50) == 0.5
    assert used.charge(0.5, written=0) == 0
    assert used.charge(0.5, written=100) == 1.0
    assert used.charge(100.0, written=100) == 0


def test_rates_are_counted_apart_and_the_longest_pause_counts() -> None:
    quota = ClientQuota(
        identity=ANN, producer_byte_rate=10, consumer_byte_rate=100, request_rate=1000
    )
    assert Allowance(quota, 0.0).charge(0.0, written=20, read=300) == 2.0


def test_one_pause_is_bounded_and_what_is_owed_is_not_forgotten() -> None:
    used = Allowance(ClientQuota(identity=ANN, consumer_byte_rate=1), 0.0)
    assert used.charge(0.0, read=101) == PAUSE_S_MAX
    assert used.charge(PAUSE_S_MAX, read=1) == PAUSE_S_MAX
    assert used.charge(101.0, read=1) == 1.0


def test_the_first_quota_that_names_an_identity_counts_for_all_its_connections() -> None:
    all_of = Allowances(
        (
            ClientQuota(identity=ANN),
            ClientQuota(identity="samelog://user/*", request_rate=1),
        )
    )
    bob = all_of.of("samelog://user/bob", 0.0)
    assert bob is not None
    assert bob is all_of.of("samelog://user/bob", 5.0)
    assert bob is not all_of.of("samelog://user/eve", 0.0)
    assert [bob.charge(0.0), bob.charge(0.0)] == [0.0, 1.0]
    ann = all_of.of(ANN, 0.0)
    assert ann is not None
    assert ann.charge(0.0, written=1 << 30, read=1 << 30) == 0
    assert all_of.of("dns:elsewhere", 0.0) is None


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 3)), max_size=60))
def test_who_waits_as_told_gets_its_rate_and_no_more(steps: list[tuple[int, float]]) -> None:
    used, now, total = Allowance(ClientQuota(identity=ANN, producer_byte_rate=100), 0.0), 0.0, 0
    for size, idle in steps:
        total += size
        now += used.charge(now, written=size) + idle
        assert total <= 100 * (now + 1) + 1e-6
