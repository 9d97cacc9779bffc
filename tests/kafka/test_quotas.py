"""Quotas, with a clock that is moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.config.tables.kafka import ClientQuota
from samelog.kafka.clients.quota_owners import QuotaOwner
from samelog.kafka.clients.quotas import PAUSE_S_MAX, Allowance, Allowances
from samelog.sequencer.state.machine import StateMachine

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


# --- of users and client ids ----------------------------------------------------------------------


def with_rates(**rates: int) -> tuple[Allowances, StateMachine]:
    """Rates to write, by owner: `ann`, `ann_app` (of both), `_app` (of a client id alone); `all`
    stands for everybody who has none.
    """
    machine = StateMachine()
    machine.state.access.quotas = {
        owner_of(name).text: {"producer_byte_rate": rate} for name, rate in rates.items()
    }
    return Allowances((), machine), machine


def owner_of(name: str) -> QuotaOwner:
    user, is_both, client = name.partition("_")
    names = [None if not each else "" if each == "all" else each for each in (user, client)]
    return QuotaOwner(names[0], names[1] if is_both else None)


def pause(all_of: Allowances, user: str, client: str, written: int) -> float:
    """How long a client has to wait for what it writes now."""
    allowance = all_of.of(f"samelog://user/{user}", 0.0, client)
    return 0.0 if allowance is None else allowance.charge(0.0, written=written)


def test_the_nearest_quota_counts() -> None:
    order = "ann_app", "ann_all", "ann", "all_app", "all_all", "all", "_app", "_all"
    for number in range(len(order)):
        rates = {name: 1000 // (place + 1) for place, name in enumerate(order) if place >= number}
        all_of, _ = with_rates(**rates)
        rate = rates[order[number]]
        assert pause(all_of, "ann", "app", 1100) == (1100 - rate) / rate, order[number]
    all_of, _ = with_rates(ann_app=100, bob=100)
    assert pause(all_of, "ann", "other", 200) == pause(all_of, "eve", "app", 200) == 0


def test_a_rate_is_shared_by_whom_it_does_not_tell_apart() -> None:
    for name, is_shared in (("ann", True), ("ann_all", False), ("_all", False)):
        all_of, _ = with_rates(**{name: 100})
        assert pause(all_of, "ann", "one", 100) == 0
        assert (pause(all_of, "ann", "two", 100) > 0) == is_shared, name
    all_of, _ = with_rates(_app=100)
    assert pause(all_of, "ann", "app", 100) == 0
    assert pause(all_of, "bob", "app", 100) == 1.0


def test_rates_of_client_ids_change_while_they_are_used() -> None:
    all_of, machine = with_rates(ann_app=100)
    used = all_of.of(ANN, 0.0, "app")
    assert used is not None
    assert used.is_for("app")
    assert not used.is_for("other")
    assert used.charge(0.0, written=200) == 1.0
    access = machine.state.access
    access.quotas, access.version = {owner_of("ann_app").text: {"producer_byte_rate": 50}}, 1
    assert all_of.limits_anybody()
    assert used.charge(0.0, written=50) == 3.0
    access.quotas, access.version = {}, 2
    assert all_of.limits_anybody()
    assert used.charge(0.0, written=1 << 30) == 0


def test_a_file_has_one_quota_for_all_client_ids() -> None:
    all_of, _ = with_rates(ann_app=100)
    used = all_of.of(ANN, 0.0, "app")
    assert used is not None
    all_of.change((ClientQuota(identity=ANN, producer_byte_rate=10),))
    assert not used.is_for("app")
    of_file = all_of.of(ANN, 0.0, "app")
    assert of_file is not None
    assert of_file is all_of.of(ANN, 0.0, "other")
    assert of_file.is_for("other")
    assert of_file.charge(0.0, written=20) == 1.0
    all_of.change(())
    assert not of_file.is_for("app")
    assert pause(all_of, "ann", "app", 100) == 0


@given(*[st.none() | st.sampled_from(["", "a", "b"])] * 2)
def test_every_owner_has_a_text_of_its_own(user: str | None, client: str | None) -> None:
    owner = QuotaOwner(user, client)
    if owner != (None, None):
        assert QuotaOwner.read(owner.text) == owner
