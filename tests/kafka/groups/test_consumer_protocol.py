"""KIP-848: rule by rule, in random lives, and the assignors by their properties."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.steps import finished
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.assignors import ASSIGNORS, uniform
from samelog.kafka.groups.requests import Beaten, Caller, GroupBeat
from samelog.sequencer.state.tables.access import AlterGroup
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from tests.kafka.groups.group_client import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def beat(
    bench: Bench,
    member: str,
    epoch: int,
    *,
    topics: Sequence[str] | None = None,
    owned: Sequence[int] | None = None,
    **more: Any,
) -> Beaten:
    joins = {"rebalance_timeout_ms": 30_000} if epoch == 0 else {}
    request = GroupBeat(
        caller=Caller("g", member, more.pop("instance", None), epoch),
        client_id="c",
        client_host="/h",
        topics=["t"] if epoch == 0 and topics is None else topics,
        owned=[] if epoch == 0 and owned is None else owned,
        **{**joins, **more},
    )
    answer: Beaten = bench.answer(bench.coordinator.beat, request)
    return answer


def test_a_member_alone_has_everything(bench: Bench) -> None:
    answer = beat(bench, "a", 0)
    assert answer == Beaten(ErrorCode.none, "a", 1, (1, 2))
    assert beat(bench, "a", 1).assigned is None
    assert beat(bench, "a", 1, owned=[1, 2]).assigned == (1, 2)


def test_a_partition_changes_hands_only_when_it_was_given_up(bench: Bench) -> None:
    beat(bench, "a", 0)
    assert beat(bench, "b", 0) == Beaten(ErrorCode.none, "b", 2, ())
    told = beat(bench, "a", 1)
    assert (told.epoch, told.assigned) == (1, (1,))
    assert beat(bench, "b", 2).assigned is None
    assert beat(bench, "a", 1, owned=[1, 2]).epoch == 1
    assert beat(bench, "a", 1, owned=[1]).epoch == 2
    assert beat(bench, "b", 2).assigned == (2,)


def test_a_member_that_does_not_give_up_is_fenced(bench: Bench) -> None:
    beat(bench, "a", 0)
    beat(bench, "b", 0)
    for _ in range(4):
        assert beat(bench, "a", 1, owned=[1, 2]).error is ErrorCode.none
        beat(bench, "b", 2)
        bench.pass_time(9)
    assert beat(bench, "a", 1).error is ErrorCode.unknown_member_id
    assert beat(bench, "b", 2).assigned == (1, 2)


def test_a_lost_answer_may_be_asked_for_again(bench: Bench) -> None:
    beat(bench, "a", 0)
    beat(bench, "b", 0)
    beat(bench, "a", 1)
    beat(bench, "a", 1, owned=[1])
    assert beat(bench, "a", 1, owned=[1]) == Beaten(ErrorCode.none, "a", 2, (1,))
    assert beat(bench, "a", 7).error is ErrorCode.fenced_member_epoch
    assert beat(bench, "a", 0).assigned == (1,)


def test_a_silent_member_is_lost(bench: Bench) -> None:
    beat(bench, "a", 0)
    beat(bench, "b", 0)
    bench.pass_time(40)
    beat(bench, "b", 2)
    bench.pass_time(10)
    assert beat(bench, "b", 2).assigned == (1, 2)


def test_a_group_may_have_a_session_timeout_of_its_own(bench: Bench) -> None:
    """It counts from the next heartbeat on."""
    beat(bench, "a", 0)
    bench.machine.apply(AlterGroup("g", {"consumer.session.timeout.ms": "2000"}, []))
    assert beat(bench, "a", 1).error is ErrorCode.none
    bench.pass_time(1.5)
    assert beat(bench, "a", 1).error is ErrorCode.none
    bench.pass_time(3)
    assert beat(bench, "a", 1).error is ErrorCode.unknown_member_id


def test_leaving_frees_at_once(bench: Bench) -> None:
    beat(bench, "a", 0)
    beat(bench, "b", 0)
    assert beat(bench, "a", -1).epoch == -1
    assert beat(bench, "b", 2).assigned == (1, 2)


def test_a_static_member_comes_back_to_what_it_had(bench: Bench) -> None:
    had = beat(bench, "a", 0, instance="i").assigned
    assert beat(bench, "x", 0, instance="i").error is ErrorCode.unreleased_instance_id
    assert beat(bench, "a", -2, instance="i").epoch == -2
    assert beat(bench, "b", 0).assigned == ()
    back = beat(bench, "a2", 0, instance="i")
    assert had is not None
    assert back.assigned is not None
    assert set(back.assigned) < set(had)
    assert beat(bench, "a", 2, instance="i").error is ErrorCode.fenced_instance_id


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"assignor": "best"}, ErrorCode.unsupported_assignor),
        ({"rebalance_timeout_ms": -1}, ErrorCode.invalid_request),
    ],
)
def test_bad_joins_are_refused(bench: Bench, more: dict[str, Any], error: ErrorCode) -> None:
    assert beat(bench, "a", 0, **more).error is error
    assert beat(bench, "a", 3).error is ErrorCode.unknown_member_id


def test_sizes_are_bounded() -> None:
    bench = Bench(max_size=1, group_bytes=10)
    assert beat(bench, "a", 0, topics=["x" * 11]).error is ErrorCode.group_max_size_reached
    beat(bench, "a", 0)
    assert beat(bench, "b", 0).error is ErrorCode.group_max_size_reached


def test_topics_that_come_grow_and_go_are_followed(bench: Bench) -> None:
    beat(bench, "a", 0, topics=["t", "v"])
    bench.machine.apply(CreateTopicCommand("v1", "v", 1, {}, 1))
    told = beat(bench, "a", 1)
    assert (told.epoch, told.assigned) == (2, (1, 2, 4))
    bench.machine.apply(DeleteTopicCommand("t1"))
    assert beat(bench, "a", 2).assigned == (4,)
    assert beat(bench, "a", 2, owned=[4]).epoch == 3


def test_commits_need_the_present_epoch(bench: Bench) -> None:
    beat(bench, "a", 0)
    assert bench.commit(Caller("g", "a", None, 1)) is ErrorCode.none
    assert bench.commit(Caller("g", "a", None, 0)) is ErrorCode.stale_member_epoch
    assert bench.commit(Caller("g", "b", None, 1)) is ErrorCode.unknown_member_id
    assert bench.commit(Caller("g")) is ErrorCode.unknown_member_id
    assert bench.coordinator.may_fetch(Caller("g", "a", None, 0)) is ErrorCode.stale_member_epoch
    assert bench.coordinator.may_fetch(Caller("g")) is ErrorCode.none


def test_a_group_without_members_may_change_its_protocol(bench: Bench) -> None:
    [classic] = bench.stable()
    assert beat(bench, "a", 0).error is ErrorCode.unknown_member_id
    bench.answer(bench.coordinator.leave, [Caller("g", classic.member_id)])
    assert beat(bench, "a", 0).epoch == 3
    assert bench.joined().error_code is ErrorCode.inconsistent_group_protocol
    bench.elect()
    assert bench.joined().error_code is ErrorCode.inconsistent_group_protocol
    beat(bench, "a", -1)
    assert bench.stable()[0].generation > 3
    assert not bench.machine.state.groups.by_id["g"].consumers


def test_groups_are_described_listed_and_deleted(bench: Bench) -> None:
    beat(bench, "a", 0)
    [group, none] = finished(bench.answer(bench.coordinator.describe_consumers, ["g", "x"]))
    assert (group.state, group.epoch, group.assignor) == ("Stable", 1, "uniform")
    [(member, target)] = group.members
    assert (member.assigned, target) == ([1, 2], (1, 2))
    assert none.error is ErrorCode.group_id_not_found
    assert [one.group_type for one in finished(bench.answer(bench.coordinator.list_groups))] == [
        "consumer"
    ]
    assert bench.answer(bench.coordinator.delete, ["g"]) == (ErrorCode.non_empty_group,)
    beat(bench, "a", -1)
    assert bench.answer(bench.coordinator.delete, ["g"]) == (ErrorCode.none,)
    assert not bench.machine.state.groups.by_id


# --- random lives -------------------------------------------------------------------------------


class Client:
    """A consumer that loses answers now and then."""

    def __init__(self, bench: Bench, name: str, topics: list[str]) -> None:
        self.bench, self.name, self.topics = bench, name, topics
        self.epoch = 0
        self.owned: set[int] = set()
        self.tells_all = True

    def act(self, *, is_lost: bool) -> None:
        full = self.tells_all or self.epoch == 0
        topics = self.topics if full else None
        owned = sorted(self.owned) if full else None
        answer = beat(self.bench, self.name, self.epoch, topics=topics, owned=owned)
        self.tells_all = is_lost
        if is_lost:
            return
        if answer.error:
            self.epoch, self.owned, self.tells_all = 0, set(), True
        else:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.tells_all = set(answer.assigned) != self.owned
                self.owned = set(answer.assigned)


def check_disjoint(bench: Bench, clients: Sequence[Client]) -> None:
    group = bench.machine.state.groups.by_id.get("g")
    members = {} if group is None else group.consumers
    held = [n for m in members.values() for n in (*m.assigned, *m.revoking)]
    assert len(held) == len(set(held))
    owned = [n for client in clients if client.name in members for n in client.owned]
    assert len(owned) == len(set(owned))


@pytest.mark.parametrize("seed", range(40))
def test_promises_hold_in_a_random_life(seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench()
    clients: list[Client] = []
    for step in range(300):
        kind = chance.choice(["beat"] * 12 + ["add", "crash", "leave", "elect", "topic"])
        if kind == "add" and len(clients) < 6:
            clients.append(Client(bench, f"c{step}", chance.choice([["t"], ["t", "u"], ["u"]])))
        elif kind == "crash" and clients:
            clients.pop(chance.randrange(len(clients)))
        elif kind == "leave" and clients:
            client = clients.pop(chance.randrange(len(clients)))
            beat(bench, client.name, -1)
        elif kind == "elect":
            bench.elect()
        elif kind == "topic" and step % 7 == 0:
            bench.machine.apply(CreateTopicCommand(f"u{step}", "u", 3, {}, 1))
        elif clients:
            chance.choice(clients).act(is_lost=chance.random() < 0.15)
            bench.pass_time(chance.choice([0.1, 1.0, 5.0]))
        check_disjoint(bench, clients)
    clients = clients or [Client(bench, "last", ["t", "u"])]
    for _ in range(30):
        for client in clients:
            client.act(is_lost=False)
        bench.pass_time(5)
        check_disjoint(bench, clients)
    wanted = {topic for client in clients for topic in client.topics}
    state = bench.machine.state
    numbers = [
        n for t in wanted for n in state.topics.by_id[state.topics.by_name[t]].partition_numbers
    ]
    assert sorted(n for client in clients for n in client.owned) == sorted(numbers), f"seed {seed}"
    [described] = finished(bench.answer(bench.coordinator.describe_consumers, ["g"]))
    assert described.state == "Stable"


# --- assignors ----------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c"])
subscriptions = st.dictionaries(st.sampled_from("pqrst"), st.sets(names), min_size=1)
sizes = st.dictionaries(names, st.integers(0, 6))


@given(subscriptions, sizes, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_one_subscriber(
    subscribed: dict[str, set[str]], counts: dict[str, int], name: str
) -> None:
    topics = {t: [100 * ord(t) + i for i in range(count)] for t, count in counts.items()}
    hands = ASSIGNORS[name](subscribed, topics, {})
    given_out = sorted(number for hand in hands.values() for number in hand)
    wanted = {topic for topics_of in subscribed.values() for topic in topics_of}
    assert given_out == sorted(n for t, numbers in topics.items() if t in wanted for n in numbers)
    for member, hand in hands.items():
        assert all(chr(number // 100) in subscribed[member] for number in hand)


@given(st.integers(1, 6), st.integers(0, 20), st.integers(1, 6))
def test_uniform_is_even_and_moves_little(members: int, count: int, later: int) -> None:
    topics = {"a": list(range(count))}
    before = uniform({f"m{i}": {"a"} for i in range(members)}, topics, {})
    after = uniform({f"m{i}": {"a"} for i in range(later)}, topics, before)
    for hands in (before, after):
        loads = [len(hand) for hand in hands.values()]
        assert max(loads) - min(loads) <= 1
    kept = sum(len(set(after[m]) & set(before.get(m, ()))) for m in after)
    most = sum(min(len(after[m]), len(before.get(m, ()))) for m in after)
    assert kept >= most - (count % later != 0) * later


def test_an_expression_is_looked_at_with_every_heartbeat(bench: Bench) -> None:
    known: list[str] = []
    by_pattern: dict[str, Any] = {"find": lambda pattern: known}
    assert beat(bench, "a", 0, topics=[], pattern="t.*", **by_pattern).assigned == ()
    known.append("t")
    found = beat(bench, "a", 1, **by_pattern)
    assert (found.error, found.assigned) == (ErrorCode.none, (1, 2))
    known.clear()
    assert beat(bench, "a", found.epoch, **by_pattern).assigned == ()


def test_an_expression_that_is_taken_back_means_nothing_more(bench: Bench) -> None:
    by_pattern: dict[str, Any] = {"find": lambda pattern: ["t"]}
    first = beat(bench, "a", 0, topics=[], pattern="t.*", **by_pattern)
    assert first.assigned == (1, 2)
    assert beat(bench, "a", first.epoch, topics=[], pattern="", **by_pattern).assigned == ()


def test_what_an_expression_means_counts_for_the_bound_of_a_group(bench: Bench) -> None:
    by_pattern: dict[str, Any] = {"find": lambda pattern: ["x" * 249] * 10_000}
    refused = beat(bench, "a", 0, topics=[], pattern=".*", **by_pattern)
    assert refused.error is ErrorCode.group_max_size_reached


class Watchers:
    """Members with one expression, as clients are: they confirm what they are asked to give up with
    their next heartbeat.
    """

    def __init__(self, bench: Bench, *names: str) -> None:
        self._bench = bench
        self.epochs = dict.fromkeys(names, 0)
        self.owned: dict[str, set[int]] = {name: set() for name in names}
        self.revoked: list[tuple[str, int]] = []

    def beat(self, name: str) -> None:
        """One heartbeat."""
        joins = {"topics": [], "pattern": "t.*"} if self.epochs[name] == 0 else {}
        known = sorted(self._bench.machine.state.topics.by_name)
        owned = None if joins else sorted(self.owned[name])
        told = beat(
            self._bench,
            name,
            self.epochs[name],
            owned=owned,
            find=lambda _: [topic for topic in known if topic.startswith("t")],
            **joins,
        )
        assert told.error is ErrorCode.none
        self.epochs[name] = told.epoch
        if told.assigned is not None:
            there = self._bench.machine.state.partitions.by_number
            gone = self.owned[name] - set(told.assigned)
            self.revoked += [(name, number) for number in sorted(gone) if number in there]
            self.owned[name] = set(told.assigned)

    def settle(self, order: Sequence[str]) -> None:
        """Until everybody has what there is."""
        for _ in range(6):
            for name in order:
                self.beat(name)
        state, hands = self._bench.machine.state, sorted(map(len, self.owned.values()))
        wanted = [
            each.partitions for each in state.topics.by_id.values() if each.name.startswith("t")
        ]
        assert sum(hands) == sum(wanted)
        assert hands[-1] - hands[0] <= 1


@pytest.mark.parametrize("order", ["ab", "ba", "abc", "bca", "cab", "cba"])
def test_topics_that_come_and_go_take_nothing_away_that_may_stay(bench: Bench, order: str) -> None:
    """As KIP-848's coordinator does: an expression means the same to all who have it."""
    watchers = Watchers(bench, *sorted(order))
    watchers.settle(sorted(order))
    watchers.revoked.clear()
    for number, partitions in enumerate((2, 3, 6, 1)):
        name = f"t{number}"
        bench.machine.apply(CreateTopicCommand(f"{number:032x}", name, partitions, {}, 1))
        watchers.settle(order)
        assert watchers.revoked == []
    epochs = {*watchers.epochs.values()}
    for number in (0, 1, 2, 3):
        bench.machine.apply(DeleteTopicCommand(f"{number:032x}"))
        watchers.settle(order)
        assert len(watchers.revoked) <= 2 * (number + 1)
    assert len(epochs) == 1
