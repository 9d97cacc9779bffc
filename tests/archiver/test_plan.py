"""The retention plan: nothing goes that is kept, and what has to go does, oldest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.archiver.plan import (
    Hold,
    PartitionFacts,
    RolledSegment,
    majority_pressure,
    plan_archiving,
)
from samelog.archiver.policy import Rules

NOW = 1_000_000


@st.composite
def facts(draw: st.DrawFn, number: int) -> PartitionFacts:
    """A partition of segments of ten records, rolled one after the other."""
    sizes = draw(st.lists(st.integers(1, 1000), max_size=6))
    known = draw(st.integers(0, len(sizes)))
    rolled = sorted(draw(st.lists(st.integers(0, NOW), min_size=len(sizes), max_size=len(sizes))))
    sealed = [
        RolledSegment(10 * at, 10 * at + 10, size, rolled[at] if at >= known else None)
        for at, size in enumerate(sizes)
    ]
    rules = Rules(
        time_ms=draw(st.none() | st.integers(0, NOW)),
        size=draw(st.none() | st.integers(0, 4000)),
        counts=draw(st.booleans()),
        for_ever=draw(st.booleans()),
    )
    bounds = st.none() | st.integers(0, NOW)
    hold = st.none() | st.builds(Hold, st.integers(0, 60), bounds, bounds)
    merged = draw(st.integers(0, 70))
    return PartitionFacts(
        number, f"t-{number}", sealed, draw(st.integers(0, 500)), merged, rules, draw(hold)
    )


PARTITIONS = st.integers(0, 4).flatmap(
    lambda count: st.tuples(*(facts(number) for number in range(count)))
)
LIMITS = st.none() | st.integers(0, 8000)


@given(PARTITIONS, LIMITS, st.integers(0, 8000))
def test_only_a_merged_prefix_of_what_is_sealed_goes(
    partitions: tuple[PartitionFacts, ...], limit: int | None, pressure: int
) -> None:
    by_number = {each.partition: each for each in partitions}
    found = plan_archiving(partitions, limit=limit, pressure=pressure, now_ms=NOW).proposals
    assert len({each.partition for each in found}) == len(found)
    for proposal in found:
        known = by_number[proposal.partition]
        gone = known.sealed[: proposal.files]
        assert (gone[0].base, gone[-1].next_offset) == (proposal.first, proposal.segment)
        assert len(gone) == proposal.files > 0
        assert proposal.segment <= known.merged
        assert sum(each.size for each in gone) == proposal.size
        assert proposal.reason


@given(PARTITIONS, LIMITS, st.integers(0, 8000))
def test_every_segment_that_goes_has_a_rule_that_takes_it(
    partitions: tuple[PartitionFacts, ...], limit: int | None, pressure: int
) -> None:
    by_number = {each.partition: each for each in partitions}
    for proposal in plan_archiving(
        partitions, limit=limit, pressure=pressure, now_ms=NOW
    ).proposals:
        known, reasons = by_number[proposal.partition], proposal.reason.split("+")
        rules, gone = known.rules, known.sealed[: proposal.files]
        assert "limit" not in reasons or (limit is not None and rules.counts)
        assert "disk" not in reasons or (pressure > 0 and not rules.for_ever)
        if reasons == ["time"]:
            assert rules.time_ms is not None
            ages = [NOW - each.rolled_ms for each in gone if each.rolled_ms is not None]
            assert len(ages) == len(gone)
            assert min(ages) >= rules.time_ms
        if reasons == ["retention.bytes"]:
            total = known.growing_bytes + sum(each.size for each in known.sealed)
            assert rules.size is not None
            assert total - proposal.size >= rules.size


@given(PARTITIONS, LIMITS, st.integers(0, 8000))
def test_what_groups_hold_stays_within_their_bounds(
    partitions: tuple[PartitionFacts, ...], limit: int | None, pressure: int
) -> None:
    by_number = {each.partition: each for each in partitions}
    for proposal in plan_archiving(
        partitions, limit=limit, pressure=pressure, now_ms=NOW
    ).proposals:
        known = by_number[proposal.partition]
        left = known.growing_bytes + sum(each.size for each in known.sealed)
        for gone in known.sealed[: proposal.files]:
            hold = known.hold
            if hold is not None and gone.next_offset > hold.offset:
                age = 0 if gone.rolled_ms is None else NOW - gone.rolled_ms
                too_old = hold.max_ms is not None and age >= hold.max_ms
                assert too_old or (hold.max_bytes is not None and left > hold.max_bytes)
            left -= gone.size


@given(PARTITIONS, st.integers(0, 8000), st.integers(0, 8000))
def test_limit_and_disk_are_kept_as_far_as_anything_may_go(
    partitions: tuple[PartitionFacts, ...], limit: int, pressure: int
) -> None:
    found = plan_archiving(partitions, limit=limit, pressure=pressure, now_ms=NOW)
    files = {each.partition: each.files for each in found.proposals}

    def is_stuck(each: PartitionFacts) -> bool:
        rest = each.sealed[files.get(each.partition, 0) :]
        return not rest or rest[0].next_offset > each.merged or each.hold is not None

    counted = [each for each in partitions if each.rules.counts]
    left = sum(
        each.growing_bytes + sum(s.size for s in each.sealed[files.get(each.partition, 0) :])
        for each in counted
    )
    assert left <= limit or all(map(is_stuck, counted))
    freed = sum(each.size for each in found.proposals)
    assert freed >= pressure or all(is_stuck(e) for e in partitions if not e.rules.for_ever)


@given(PARTITIONS)
def test_without_a_rule_nothing_goes(partitions: tuple[PartitionFacts, ...]) -> None:
    keeping = [_without_rules(each) for each in partitions]
    assert plan_archiving(keeping, limit=None, pressure=0, now_ms=NOW).proposals == []


def _without_rules(known: PartitionFacts) -> PartitionFacts:
    return PartitionFacts(
        known.partition, known.name, known.sealed, known.growing_bytes, known.merged, Rules()
    )


def test_the_oldest_roll_goes_first_across_partitions() -> None:
    one = PartitionFacts(
        1, "a", [RolledSegment(0, 5, 10, 300), RolledSegment(5, 9, 10, 400)], 0, 99, Rules()
    )
    two = PartitionFacts(
        2, "b", [RolledSegment(0, 7, 10, 100), RolledSegment(7, 8, 10, 350)], 0, 99, Rules()
    )
    found = plan_archiving([one, two], limit=15, pressure=0, now_ms=NOW)
    assert [(each.name, each.segment) for each in found.proposals] == [("a", 5), ("b", 8)]
    assert {each.reason for each in found.proposals} == {"limit"}


def test_who_is_held_is_named() -> None:
    held = PartitionFacts(1, "a", [RolledSegment(0, 5, 10, 1)], 0, 99, Rules(time_ms=1), Hold(3))
    found = plan_archiving([held], limit=None, pressure=0, now_ms=NOW)
    assert (found.proposals, found.held) == ([], ["a"])


def test_only_a_majority_of_full_disks_counts() -> None:
    full, free = (95, 100), (50, 100)
    assert majority_pressure([full, free, free], 3, 90) == 0
    assert majority_pressure([full, (92, 100), free], 3, 90) == 2
    assert majority_pressure([full], 3, 90) == 0  # too few were heard of
    assert majority_pressure([full], 1, 90) == 5
