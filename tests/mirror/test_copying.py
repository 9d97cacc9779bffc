"""One partition, from where its mirror ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from samelog.admin.mirror_requests import LeaveGap
from samelog.format.void_batch import empty_batches
from samelog.mirror.copying import PartitionMirror
from samelog.mirror.errors import BatchRefused, MirrorStopped, NotFollowing
from samelog.mirror.kafka.source import FetchedBatches
from tests.kafka.batches import put
from tests.mirror.fakes import WHERE, FakeDestination, FakeSource, batches, odd
from tests.sequencer.mirroring import compacted, source_batch


async def mirror(source: FakeSource, destination: FakeDestination, **options: object) -> None:
    """To the source's end."""

    async def ready() -> None:
        return

    made = PartitionMirror(
        source,
        destination,  # type: ignore[arg-type]
        WHERE,
        "eu.t",
        is_ready=ready,
        stop=source.end,
        **options,  # type: ignore[arg-type]
    )
    await made.run(destination.here, source.partition(), 0)


def test_it_goes_on_where_the_mirror_ends() -> None:
    source, destination = FakeSource(*batches(3, 2)), FakeDestination()
    asyncio.run(mirror(source, destination))
    source.batches += batches(4, first=5)
    asyncio.run(mirror(source, destination))
    assert destination.log == b"".join(source.batches)


def test_other_records_before_the_end_stop_it() -> None:
    """The source lost its newest records, and has written others."""
    source, destination = FakeSource(*batches(3, 2)), FakeDestination()
    asyncio.run(mirror(source, destination))
    source.batches = [*source.batches[:1], source_batch(3, 2, producer_id=7), source_batch(5)]
    with pytest.raises(MirrorStopped, match="before offset 5 is another one"):
        asyncio.run(mirror(source, destination))
    assert destination.here.next_offset == 5


def test_a_source_that_ends_earlier_stops_it() -> None:
    source, destination = FakeSource(*batches(3, 2)), FakeDestination()
    asyncio.run(mirror(source, destination))
    del source.batches[1:]
    with pytest.raises(MirrorStopped, match="it lost records"):
        asyncio.run(mirror(source, destination))


def test_an_empty_mirror_begins_where_the_source_does() -> None:
    source, destination = FakeSource(*batches(3, 2, first=10)), FakeDestination()
    source.start = 11
    asyncio.run(mirror(source, destination))
    assert [(each.next_offset, each.start_offset) for each in destination.gaps] == [(10, 11)]
    assert destination.log == b"".join(source.batches)


def test_what_is_deleted_in_the_middle_of_a_batch_is_not_read_at_the_mirror() -> None:
    source, destination = FakeSource(*batches(3, 2)), FakeDestination()
    source.start = 2
    asyncio.run(mirror(source, destination))
    assert [(each.next_offset, each.start_offset) for each in destination.gaps] == [(0, 2)]
    assert destination.log == b"".join(source.batches)
    source.start = 4
    source.batches += batches(1, first=5)
    asyncio.run(mirror(source, destination))
    assert destination.here.next_offset == 6


def test_what_was_archived_before_it_was_mirrored_stops_it_unless_it_is_skipped() -> None:
    source, destination = FakeSource(*batches(3, 2, 4)), FakeDestination()
    source.batches, rest = source.batches[:1], source.batches[2:]
    asyncio.run(mirror(source, destination))
    source.batches, source.start = rest, 5
    with pytest.raises(MirrorStopped, match="offsets 3 to 4 are archived"):
        asyncio.run(mirror(source, destination))
    asyncio.run(mirror(source, destination, skips_archived=True))
    assert (destination.here.next_offset, len(destination.gaps)) == (9, 1)


def test_a_hole_at_the_source_is_one_of_the_mirror() -> None:
    source, destination = FakeSource(source_batch(0), source_batch(20)), FakeDestination()
    with pytest.raises(NotFollowing):
        asyncio.run(mirror(source, destination))
    asyncio.run(mirror(source, destination))
    assert destination.log == b"".join(source.batches)
    assert [(each.base_offset, each.next_offset) for each in destination.gaps] == [(3, 20)]


def test_other_records_before_a_hole_stop_it() -> None:
    """Nothing is mirrored behind the hole yet: what is before it is compared."""
    source, destination = FakeSource(source_batch(0), source_batch(20)), FakeDestination()
    with pytest.raises(NotFollowing):
        asyncio.run(mirror(source, destination))
    source.batches = [source_batch(0, producer_id=7), source_batch(20, producer_id=8)]
    with pytest.raises(MirrorStopped, match="before offset 3 is another one"):
        asyncio.run(mirror(source, destination))
    assert destination.here.next_offset == 20


def test_a_compacted_source_is_one_log_with_the_same_offsets() -> None:
    """Holes stand as empty batches: no gap is asked for, and the copy goes on."""
    source, destination = FakeSource(source_batch(4), source_batch(20)), FakeDestination()
    source.batches.append(compacted(23, 30, 25))
    asyncio.run(mirror(source, destination, is_compacted=True))
    first, second, third = source.batches
    holes = empty_batches(0, 4, 7), empty_batches(7, 20, 7)
    assert destination.log == holes[0] + first + holes[1] + second + third
    assert (destination.here.next_offset, destination.gaps) == (30, [])


def test_what_the_source_compacts_behind_the_mirror_stops_nothing() -> None:
    source, destination = FakeSource(*batches(3, 2)), FakeDestination()
    asyncio.run(mirror(source, destination, is_compacted=True))
    before = destination.log
    for left in (compacted(3, 5, 4), empty_batches(0, 5, 7)):
        source.batches = [left, source_batch(destination.here.next_offset)]
        asyncio.run(mirror(source, destination, is_compacted=True))
    assert destination.log == before + source_batch(5) + source_batch(8)


def test_a_compacted_source_that_has_written_others_stops_it() -> None:
    """A batch that has all its records was not compacted: it is another one."""
    source, destination = FakeSource(*batches(3, 2)), FakeDestination()
    asyncio.run(mirror(source, destination, is_compacted=True))
    source.batches = [source_batch(0), source_batch(3, 2, producer_id=7), source_batch(5)]
    with pytest.raises(MirrorStopped, match="before offset 5 is another one"):
        asyncio.run(mirror(source, destination, is_compacted=True))


def test_what_is_before_a_batch_that_cannot_be_held_is_mirrored_and_a_gap_leads_on() -> None:
    good, bad, behind = batches(3, 2), odd(5), batches(4, first=7)
    source, destination = FakeSource(*good, bad, *behind), FakeDestination()
    text = r"the batch at offset 5 cannot be held: .*samelog mirror skip eu.t/0 --to 7"
    for _ in range(2):
        with pytest.raises(MirrorStopped, match=text):
            asyncio.run(mirror(source, destination))
        assert destination.log == b"".join(good)
    where = destination.here.partition, 5, 7
    asyncio.run(destination.leave_gap(LeaveGap("eu.t", *where, 7)))
    asyncio.run(mirror(source, destination))
    assert destination.here.next_offset == 11


def test_a_batch_to_skip_is_named_once_all_before_it_is_in_the_mirror() -> None:
    """A gap begins at the mirror's end, so it would take the place of records on their way."""

    class Slow(FakeDestination):
        on_its_way = b""

        async def write(self, topic: str, partition: int, data: bytes) -> None:
            self.on_its_way += data

        async def settled(self, topic: str, partition: int) -> None:
            await super().write(topic, partition, self.on_its_way)

    source, destination = FakeSource(*batches(3, 2), odd(5)), Slow()
    with pytest.raises(MirrorStopped, match="--to 7"):
        asyncio.run(mirror(source, destination))
    assert destination.here.next_offset == 5


@pytest.mark.parametrize("number", [0, 1])
def test_what_kafka_gives_is_taken_up_to_a_batch_that_has_reserved_bits(number: int) -> None:
    found: Any = batches(3, 2)
    found[number] = put(21, ">H", 0x100)(found[number])
    fetched = FetchedBatches(cast(Any, None), WHERE, 0)
    data = b"".join(found)
    if number:
        assert fetched._whole(data) == found[0]
        data = found[1]
    with pytest.raises(BatchRefused, match="reserved attribute bits") as refused:
        fetched._whole(data)
    assert (refused.value.base_offset, refused.value.next_offset) == ((0, 3), (3, 5))[number]
