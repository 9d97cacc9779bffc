"""Mirrors in data groups: what moves with a partition, and a promotion that several groups carry
out (rules mirrors.8, mirrors.17 and mirrors.18).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import EVENTS_REMEMBERED
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.mirrors import (
    FollowSource,
    MirrorGap,
    MirrorState,
    PromoteMirrors,
    TellMirrors,
)
from samelog.sequencer.state.tables.placement import PlacePartitions
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from samelog.sequencer.state.units.mirrors import groups_ending
from tests.sequencer.mirror_groups import PUBLISHER, Groups
from tests.sequencer.mirroring import SESSION, in_transaction

STEPS = 200


def code(outcome: Any) -> str:
    assert isinstance(outcome, Rejection), outcome
    return outcome.code


def made(*homes: int, count: int = 2) -> tuple[Groups, list[int]]:
    groups = Groups(count)
    groups.create("m", homes)
    return groups, groups.numbers("m")


# --- how far it is --------------------------------------------------------------------------------


def test_the_group_of_a_partition_knows_how_far_it_is_mirrored() -> None:
    groups, (one, two) = made(1, 2)
    groups.home(one).bring(one)
    assert groups.home(one).state.mirrors.places[one].crc is not None
    assert groups.home(two).state.mirrors.places[two].crc is None
    assert not groups.cluster.state.mirrors.places
    assert groups.cluster.state.mirrors.of_topic("m") is not None


def test_only_the_sidecar_writes_to_a_mirror_in_a_data_group() -> None:
    groups, (number,) = made(1)
    assert not groups.publish(number)
    refused = groups.home(number).open(PUBLISHER, number)
    assert code(refused) == "ENDING", "a publisher that group 0 has let pass asks again"
    assert not isinstance(groups.home(number).open(SESSION, number), Rejection)


def test_what_is_known_of_a_mirror_moves_with_the_partition() -> None:
    groups, (number,) = made(1)
    source = groups.home(number)
    source.bring(number, epoch=12, producer_id=4)
    source.merge(SESSION, number, in_transaction(3, 5))
    before = source.state.mirrors.places[number]
    groups.end_move(number, 2, groups.begin_move(number, 2))
    target = groups.home(number)
    assert target.number == 2
    assert target.state.mirrors.places[number] == before
    assert target.state.mirrors.first_open(number) == 3
    assert not source.state.mirrors.places
    assert target.bring(number)[-1].base_offset == 5
    groups.settle()
    groups.promote("m")
    groups.settle()
    assert groups.cluster.state.mirrors.topics["m"].ends == [8]
    assert list(target.state.producers.batches[4]) == [number]


def test_what_is_sealed_for_another_group_does_not_change() -> None:
    groups, (number,) = made(1)
    source = groups.home(number)
    source.bring(number)
    carried = groups.begin_move(number, 2)
    groups.promote("m")
    groups.settle()
    source.machine.apply(PromoteMirrors(["m"], 9, ""))  # it was on its way meanwhile
    gap = MirrorGap(number, 3, 40, 0, None, 7, "archived")
    assert code(source.machine.apply(gap)) == "ON_ITS_WAY"
    assert number in source.state.mirrors.places
    assert groups.cluster.state.mirrors.of_topic("m") is not None, "its next group ends it"
    groups.end_move(number, 2, carried)
    groups.settle()
    assert groups.cluster.state.mirrors.of_topic("m") is None
    assert groups.groups[2].state.mirrors.ended == {number: 3}


def test_group_0_learns_of_leader_epochs_that_mirrored_records_have_raised() -> None:
    groups, (number,) = made(1)
    groups.home(number).bring(number, epoch=700)
    groups.settle()
    placed = groups.cluster.state.placement.partitions[number]
    assert placed.epoch_base == groups.home(number).state.epochs.base_of(number) >= 690
    groups.promote("m")
    groups.settle()
    placed = groups.cluster.state.placement.partitions[number]
    assert placed.epoch_base == groups.home(number).state.epochs.base_of(number) >= 691


def test_a_mirror_gets_more_partitions_in_data_groups() -> None:
    groups, (number,) = made(1)
    table = groups.cluster.state.placement
    more = PlacePartitions(table.version, "m", 2, [], [2])
    assert not isinstance(groups.cluster.apply(more), Rejection)
    groups.settle()
    assert set(groups.groups[2].state.mirrors.places) == {*groups.numbers("m")} - {number}
    groups.promote("m")
    more = PlacePartitions(table.version, "m", 3, [], [2])
    assert code(groups.cluster.apply(more)) == "MIRROR"


def test_a_reset_is_refused_while_a_promotion_is_under_way() -> None:
    groups, (number,) = made(1)
    groups.home(number).bring(number)
    groups.promote("m")
    assert code(groups.cluster.apply(HardReset("r", 9, 3))) == "PROMOTING"
    groups.settle()
    assert not isinstance(groups.cluster.apply(HardReset("r", 9, 3)), Rejection)


def test_positions_are_kept_while_the_partition_moves() -> None:
    groups, (number,) = made(1)
    for at_ms, offset in ((100, 2), (200, 1)):
        position = CommittedOffset(offset, -1, "", at_ms)
        groups.cluster.apply(FollowSource([("g", [(number, position)])], []))
        groups.end_move(
            number, 2 if at_ms == 100 else 1, groups.begin_move(number, 2 if at_ms == 100 else 1)
        )
        assert groups.cluster.state.groups.by_id["g"].offsets[number].offset == offset


# --- promotion ------------------------------------------------------------------------------------


def test_topics_are_promoted_when_all_their_partitions_have_ended() -> None:
    groups = Groups()
    groups.create("m", (1, 2))
    groups.create("n", (2,))
    one, two = groups.numbers("m")
    groups.home(one).bring(one)
    groups.promote("m", "n")
    first, second = groups.groups.values()
    first.learn(groups.cluster)
    first.follow()
    groups.cluster.apply(first.told())
    assert not first.bring(one)[0].ranges[0].records, "it has ended there"
    assert second.bring(two), "and continues in the other group"
    mirrors = groups.cluster.state.mirrors
    assert mirrors.of_topic("m") is not None
    assert groups_ending(groups.cluster.state, "n") == {2}
    assert not groups.publish(one)
    groups.settle()
    assert mirrors.topics["m"].ends == [3, 3]
    assert (mirrors.topics["n"].ends, mirrors.topics["n"].promoted_ms) == ([0], 9)
    assert groups.publish(one)
    assert not mirrors.promotions


def test_a_promotion_ends_without_a_topic_that_is_deleted() -> None:
    groups = Groups()
    groups.create("m", (1,))
    groups.create("n", (2,))
    groups.promote("m", "n")
    first = groups.groups[1]
    first.learn(groups.cluster)
    first.follow()
    groups.cluster.apply(first.told())
    assert groups.cluster.state.mirrors.of_topic("m") is not None
    groups.cluster.apply(DeleteTopicCommand("n"))
    assert groups.cluster.state.mirrors.of_topic("m") is None
    assert "eu.m is a mirror no more" in groups.cluster.state.events.remembered[-1].text


def test_a_promotion_that_is_asked_for_again_is_the_same() -> None:
    groups, (number,) = made(1)
    groups.promote("m")
    groups.promote("m", at_ms=10)
    assert len(groups.cluster.state.mirrors.promotions) == 1
    groups.settle()
    groups.promote("m", at_ms=11)
    assert groups.cluster.state.mirrors.topics["m"].promoted_ms == 9
    assert groups.publish(number)


def test_group_0_forgot_a_promotion_that_groups_have_carried_out() -> None:
    """It was recovered from an older copy: the same command completes it."""
    groups, (number,) = made(1)
    groups.home(number).bring(number)
    older = groups.cluster.encode()
    groups.promote("m")
    groups.settle()
    groups.cluster = StateMachine.decode(older)
    groups.settle()
    assert groups.cluster.state.mirrors.of_topic("m") is not None
    assert not groups.publish(number)
    groups.promote("m")
    groups.settle()
    assert groups.cluster.state.mirrors.topics["m"].ends == [3]
    assert groups.publish(number)


def test_a_group_that_forgot_its_end_ends_again() -> None:
    """It was recovered with a replica that lacked the entry."""
    groups, (number,) = made(1)
    home = groups.home(number)
    home.bring(number)
    older = home.machine.encode()
    groups.promote("m")
    groups.settle()
    home.machine = StateMachine.decode(older)
    home.plan_anew()
    assert code(home.open(PUBLISHER, number)) == "ENDING"
    groups.settle()
    assert home.state.mirrors.ended == {number: 3}
    assert groups.publish(number)


def test_what_groups_say_of_mirrors_is_read_back() -> None:
    told: list[Any] = [TellMirrors([MirrorState(1, 5, None), MirrorState(2, 0, 7)])]
    assert decode_commands(encode_commands(told)) == told
    groups, _ = made(1)
    groups.promote("m")
    state = groups.cluster.state
    assert StateMachine.decode(groups.cluster.encode()).state.mirrors == state.mirrors


class RandomWorld:
    """Two mirrors in three groups: records come, partitions move, groups lag, publishers try, and
    an operator promotes both at some moment.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"promotion {seed}")
        self.groups = Groups(3)
        self.groups.create("m", (1, 2))
        self.groups.create("n", (3, 1))
        self.numbers = [*self.groups.numbers("m"), *self.groups.numbers("n")]
        self.moving: tuple[int, int, bytes] | None = None
        self.is_promoted = False
        self.own: dict[int, int] = {}
        """Partition -> offset of its first own record."""

    def run(self) -> None:
        for step in range(STEPS):
            self.act(step)
            self.check()
        if self.moving is not None:
            self.groups.end_move(*self.moving)
        self.groups.promote("m", "n")
        self.groups.settle()
        self.check()
        for number in self.numbers:
            placed = self.groups.cluster.state.placement.partitions[number]
            home = self.groups.home(number).state
            assert placed.epoch_base == home.epochs.base_of(number)
        assert all(self.groups.publish(number) for number in self.numbers)

    def act(self, step: int) -> None:
        chance, groups = self.chance, self.groups
        number = chance.choice(self.numbers)
        way = chance.random()
        if way < 0.3:
            self.bring(number)
        elif way < 0.5:
            self.publish(number)
        elif way < 0.75:
            group = groups.groups[chance.randint(1, 3)]
            if chance.random() < 0.5:
                group.learn(groups.cluster)
            if chance.random() < 0.5:
                group.follow()
            if chance.random() < 0.5:
                groups.cluster.apply(group.told())
        elif way < 0.9:
            self.move(number)
        elif step > STEPS // 3:
            groups.promote("m", "n")
            self.is_promoted = True

    def is_still(self, number: int) -> bool:
        return self.moving is not None and self.moving[0] == number

    def bring(self, number: int) -> None:
        if self.is_still(number):
            return
        merges = self.groups.home(number).bring(number)
        for part in (each for merge in merges for each in merge.ranges if each.records):
            assert part.verdict is Verdict.TAKE
            assert number not in self.own, "a record of the source is behind an own one"

    def publish(self, number: int) -> None:
        if self.is_still(number):
            return
        end = self.groups.home(number).state.partitions.by_number[number].next_offset
        if self.groups.publish(number):
            self.own.setdefault(number, end)

    def move(self, number: int) -> None:
        if self.moving is not None:
            self.groups.end_move(*self.moving)
            self.moving = None
            return
        target = self.chance.randint(1, 3)
        home = self.groups.home(number)
        target_state = self.groups.groups[target].state
        if home.number != target and number not in target_state.partitions.by_number:
            self.moving = number, target, self.groups.begin_move(number, target)

    def check(self) -> None:
        """Once anything of both topics is their own, nothing of the source comes any more."""
        mirrors = self.groups.cluster.state.mirrors
        if not self.own:
            return
        assert self.is_promoted
        ends = dict(
            zip(self.numbers, [*mirrors.topics["m"].ends, *mirrors.topics["n"].ends], strict=True)
        )
        for number, end in ends.items():
            assert self.groups.home(number).state.mirrors.ended[number] == end
            assert self.own.get(number, end) == end
        assert not any(group.state.mirrors.places for group in self.groups.groups.values())


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_nothing_is_its_own_before_all_of_a_promotion_have_ended(first: int) -> None:
    promoted = 0
    for seed in range(first, first + 50):
        world = RandomWorld(seed)
        world.run()
        promoted += bool(world.own)
    assert promoted > 5, "publishers wrote in some worlds"


def test_one_event_tells_of_each_topic() -> None:
    groups, _ = made(1, 2)
    groups.promote("m")
    groups.settle()
    groups.settle()
    kinds = [each.kind for each in groups.cluster.state.events.remembered[-EVENTS_REMEMBERED:]]
    assert kinds.count("mirror-promoted") == 1
    assert PromoteMirrors(["m"], 1, "").topic_ids == ["m"]
