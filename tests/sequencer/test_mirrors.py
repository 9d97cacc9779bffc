"""Mirrors in the state, the planner and the merger: the source's bytes, at the source's offsets,
and nothing else (rules mirrors.1 to mirrors.10).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from samelog.consensus import Entry
from samelog.format import _kernels as kernels
from samelog.format.dedup import dedup_producer_id
from samelog.format.void_batch import EMPTY_OFFSETS_MOST, empty_batches
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.admin.mirroring.mirrors import mirrored_partition
from samelog.sequencer.ingest.batch_check import (
    ANY_PRODUCER,
    MIRRORED,
    Unpacking,
    check_batches,
)
from samelog.sequencer.merge.dedup import SEQUENCES, BatchFacts, DedupView
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import MergeExtras, Verdict, VoidRecordsCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.mirrors import (
    FollowSource,
    MirrorGap,
    PromoteMirrors,
)
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from samelog.store.disk.files import OsFileSystem
from tests.sequencer.cluster import InLoop, until
from tests.sequencer.mirroring import (
    SESSION,
    SOURCE,
    MirrorWorld,
    compacted,
    content,
    in_transaction,
    source_batch,
    source_marker,
)


def code(outcome: Any) -> str:
    assert isinstance(outcome, Rejection), outcome
    return outcome.code


# --- bytes ----------------------------------------------------------------------------------------


def test_the_bytes_are_the_sources_offsets_epochs_and_all(tmp_path: Path) -> None:
    world = MirrorWorld()
    sent = [source_batch(0, epoch=7), source_batch(3, epoch=9, producer_id=4), source_batch(6)]
    world.bring(*sent[:2])
    world.bring(sent[2])
    assert content(world.merged(tmp_path)) == b"".join(sent)
    place = world.machine.state.mirrors.places[world.number]
    assert place.checksum == kernels.crc32c(b"".join(sent))
    assert place.crc == kernels.scan(sent[2]).last_crc
    assert (world.next_offset, place.top_epoch) == (9, 9)


def test_epochs_of_another_kind_of_cluster_become_ours(tmp_path: Path) -> None:
    world = MirrorWorld(msgspec.structs.replace(SOURCE, keeps_epochs=False))
    world.bring(source_batch(0, epoch=700))
    assert content(world.merged(tmp_path)) == source_batch(0, epoch=3)
    assert world.machine.state.mirrors.places[world.number].checksum is None


def test_other_headers_than_the_leaders_are_not_merged(tmp_path: Path) -> None:
    """No CRC of a batch covers its offset and its epoch: the instruction does."""
    world = MirrorWorld()
    world.bring(source_batch(0, epoch=7))
    key = (world.input, 0, 0)
    world.bytes.files[key] = source_batch(0, epoch=8)
    merger = world.merged(tmp_path)
    assert merger.log.next_offset == 0
    assert merger.missing is not None


@pytest.mark.parametrize(("offset", "verdict"), [(0, Verdict.DUPLICATE), (4, Verdict.OUT_OF_ORDER)])
def test_what_does_not_follow_is_passed_over(offset: int, verdict: Verdict) -> None:
    world = MirrorWorld()
    world.bring(source_batch(0))
    (merge,) = world.bring(source_batch(offset))
    assert merge.extras is not None
    assert merge.extras.mirrored is not None
    assert [part.verdict for part in merge.ranges] == [verdict]
    assert world.next_offset == 3
    world.bring(source_batch(3))
    assert world.next_offset == 6


def test_what_is_compacted_at_the_source_is_merged_as_it_is(tmp_path: Path) -> None:
    """Batches with more offsets than records, and empty ones, which stand for what is gone."""
    world = MirrorWorld()
    brought = compacted(0, 5, 2, 3), empty_batches(5, 50, 7), source_batch(50)
    world.bring(*brought)
    assert world.next_offset == 53
    assert content(world.merged(tmp_path)) == b"".join(brought)


def test_only_mirrors_take_what_was_compacted() -> None:
    for batch in (compacted(0, 5, 2, 3), empty_batches(0, 9, 7)):
        given = memoryview(batch)
        asked: Any = {"batch_bytes": 1 << 20, "unpacking": Unpacking()}
        assert check_batches(given, own=lambda: MIRRORED, **asked)[0] == batch[26] + 1
        with pytest.raises(RequestRefused):
            check_batches(given, own=lambda: ANY_PRODUCER, **asked)
        with pytest.raises(RequestRefused):
            check_batches(given[:-1], own=lambda: MIRRORED, **asked)


def test_a_segment_has_no_more_offsets_than_its_index_takes(tmp_path: Path) -> None:
    """Years of a compacted topic are few bytes and billions of offsets."""
    world, end = MirrorWorld(), 0
    for _ in range(9):
        following = end + EMPTY_OFFSETS_MOST
        world.bring(empty_batches(end, following, 7) + source_batch(following))
        end = following + 3
    assert world.next_offset == end > 1 << 32
    begins = [merge.base_offset for merge in world.merges if merge.roll]
    segments = zip([0, *begins], [*begins, end], strict=True)
    assert all(behind - first < 1 << 31 for first, behind in segments)
    merged = world.merged(tmp_path)
    assert merged.log.next_offset == end


def test_a_mirror_merge_needs_the_next_offset() -> None:
    world = MirrorWorld()
    (merge,) = world.bring(source_batch(0))
    assert code(world.machine.apply(merge)) == "PRECONDITION"


# --- who writes -----------------------------------------------------------------------------------


def test_nobody_else_opens_a_mirror() -> None:
    world = MirrorWorld()
    assert code(world.open("publisher", "m")) == "MIRROR"
    world.machine.apply(CreateTopicCommand("t", "own", 1, {}, 0))
    assert code(world.open("mirror.other", "t")) == "MIRROR"


def test_a_merge_for_a_mirror_is_rejected_and_the_other_way_round() -> None:
    world = MirrorWorld()
    world.bytes.put(world.input, source_batch(0))
    (merge,) = world.plan()
    for extras in (None, MergeExtras()):
        other = msgspec.structs.replace(merge, extras=extras)
        assert code(world.machine.apply(other)) == "MIRROR"
    world.commit([merge])
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    late = msgspec.structs.replace(merge, base_offset=3)
    assert code(world.machine.apply(late)) == "MIRROR"


def test_records_of_a_mirror_are_neither_void_nor_compacted() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0))
    void = VoidRecordsCommand(world.number, 0, 3, 0, 1, 1, 1)
    assert code(world.machine.apply(void)) == "MIRROR"
    compact = AlterTopicCommand("m", {"cleanup.policy": "compact"}, [])
    assert code(world.machine.apply(compact)) == "MIRROR"


def test_dedup_learns_nothing() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0, producer_id=5), source_batch(3, producer_id=5))
    assert not world.machine.state.producers.batches
    assert not world.machine.state.producers.seen_ms


def test_producers_go_on_after_a_promotion() -> None:
    """What they send again is known, by what the mirrored batches say of themselves."""
    world = MirrorWorld()
    world.bring(source_batch(0, producer_id=5), source_batch(3, producer_id=5))

    def verdict(first: int) -> Verdict:
        facts = BatchFacts(3, 5, 0, first)
        return DedupView(world.machine).judge(facts, world.number).verdict

    assert verdict(3) is Verdict.TAKE, "nothing is known while it is a mirror"
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    assert [verdict(0), verdict(3)] == [Verdict.DUPLICATE] * 2
    assert [verdict(6), verdict(9)] == [Verdict.TAKE, Verdict.OUT_OF_ORDER]


def test_twins_go_on_after_a_promotion() -> None:
    """Batches say the low 31 bits of an id: it is the nearest that is meant."""
    world, era = MirrorWorld(), 5 * SEQUENCES
    world.bring(source_batch(0, producer_id=dedup_producer_id("twin")))
    view, ids = DedupView(world.machine), (era + 1, era, era + 1000, era - 1000)
    assert view.watermark("twin", world.number, era) is None, "it is a mirror"
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    assert {view.watermark("twin", world.number, near) for near in ids} == {era + 2}
    assert view.watermark("another", world.number, era) is None
    view.set_watermark("twin", world.number, era + 7)
    assert view.watermark("twin", world.number, era) == era + 7, "what came here counts more"


def test_records_do_not_go_in_circles() -> None:
    world = MirrorWorld()
    source = MirrorSource("b", "x", "l", ["destination", "b"], keeps_epochs=True)
    again = CreateTopicCommand("n", "again", 1, {}, 5, source=source)
    assert code(world.machine.apply(again)) == "MIRROR"


def test_more_partitions_are_mirrored_too() -> None:
    world = MirrorWorld()
    world.machine.apply(AddPartitions("m", 2))
    numbers = world.machine.state.topics.by_id["m"].partition_numbers
    assert set(world.machine.state.mirrors.places) == set(numbers)
    world.machine.apply(DeleteTopicCommand("m"))
    assert not world.machine.state.mirrors.places
    assert not world.machine.state.mirrors.topics


def test_a_hard_reset_begins_mirrors_anew() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0))
    world.machine.apply(HardReset("r", 9, 3))
    (number,) = world.machine.state.topics.by_id["m"].partition_numbers
    assert world.machine.state.mirrors.places[number].crc is None


# --- gaps -----------------------------------------------------------------------------------------


def gap(world: MirrorWorld, first: int, behind: int, start: int = 0) -> Any:
    return world.machine.apply(MirrorGap(world.number, first, behind, start, 99, 7, "archived"))


def test_an_empty_mirror_begins_later() -> None:
    world = MirrorWorld()
    assert not isinstance(gap(world, 0, 40, 42), Rejection)
    assert not isinstance(gap(world, 0, 40, 42), Rejection)  # its fate was not known
    partition = world.machine.state.partitions.by_number[world.number]
    assert (partition.start_segment, partition.start_checksum, partition.log_start) == (40, 99, 42)
    world.bring(source_batch(40))
    checksum = world.machine.state.mirrors.places[world.number].checksum
    assert checksum == kernels.crc32c(source_batch(40), 99)


def test_readers_begin_where_they_do_at_the_source() -> None:
    """It may be inside the first batch."""
    world = MirrorWorld()
    assert not isinstance(gap(world, 0, 0, 2), Rejection)
    world.bring(source_batch(0))
    partition = world.machine.state.partitions.by_number[world.number]
    assert (partition.log_start, partition.next_offset) == (2, 3)
    assert code(gap(world, 3, 3, 3)) == "PRECONDITION"


def test_a_gap_in_a_mirror_is_void_and_remembered() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0))
    assert code(gap(world, 0, 40)) == "PRECONDITION"
    assert not isinstance(gap(world, 3, 40), Rejection)
    state = world.machine.state
    assert [
        (v.base_offset, v.next_offset) for v in state.partitions.by_number[world.number].voids
    ] == [(3, 40)]
    assert "offsets 3 to 39 are void" in state.events.remembered[-1].text
    place = state.mirrors.places[world.number]
    assert place.checksum is None
    assert place.behind == 3
    assert place.crc == kernels.scan(source_batch(0)).last_crc, "it is compared before more comes"
    assert not isinstance(gap(world, 40, 50), Rejection)
    assert place.behind == 3
    world.bring(source_batch(50))
    assert world.next_offset == 53
    assert state.mirrors.places[world.number].behind is None


def test_what_follows_a_gap_waits_behind_it(tmp_path: Path) -> None:
    """A node that catches up has the instructions of both sides before it executes any."""
    world = MirrorWorld()
    world.bring(source_batch(0))
    gap(world, 3, 40)
    gap(world, 40, 50)
    world.bring(source_batch(50))
    log = world.merged(tmp_path).log
    assert log.next_offset == 53
    assert log.read(0, 0, 1 << 20).startswith(source_batch(0))
    assert log.read(0, 0, 1 << 20).endswith(source_batch(50))


def test_an_empty_mirror_begins_later_behind_what_adds_nothing(tmp_path: Path) -> None:
    world = MirrorWorld()
    world.bring(source_batch(40))
    assert [part.records for merge in world.merges for part in merge.ranges] == [0]
    gap(world, 0, 40)
    world.bring(source_batch(40))
    merger = world.merged(tmp_path)
    assert [merge.base_offset for merge in merger.pending] == [40]
    assert merger.missing is not None, "what is before is archived"


def test_a_node_starts_again_before_it_has_executed_both_sides_of_a_gap(
    tmp_path: Path, in_loop: InLoop
) -> None:
    """It has them from entries, one behind the other, or from a snapshot."""
    world = MirrorWorld()
    (before,) = world.bring(source_batch(0))
    left = MirrorGap(world.number, 3, 40, 0, 99, 7, "archived")
    world.machine.apply(left)
    (behind,) = world.bring(source_batch(40))
    kept = StateMachine.decode(world.machine.encode())

    async def main() -> None:
        fresh = MirrorWorld().machine
        replica, merging = replica_of(world, fresh, tmp_path / "entries")
        replica.start([], 0)
        replica.apply(Entry(1, 1, encode_commands([before, left, behind])))
        await until(lambda: end_of(merging, world) == 43, "all is merged")
        replica, merging = replica_of(world, kept, tmp_path / "snapshot")
        replica.start([before, behind], 1)
        await until(lambda: end_of(merging, world) == 43, "all is merged")

    in_loop(main())


def replica_of(world: MirrorWorld, machine: StateMachine, path: Path) -> tuple[Replica, Merging]:
    aside = {"syncer": Mock(), "events": Mock(), "measures": Mock()}
    merging = Merging(OsFileSystem(), str(path), world, machine, **aside)
    return Replica(machine, Mock(), merging, Mock()), merging


def end_of(merging: Merging, world: MirrorWorld) -> int:
    return merging.partition(world.number).log.next_offset


def test_a_transaction_that_may_have_ended_in_a_gap_is_told() -> None:
    world = MirrorWorld()

    def told() -> int | None:
        state = world.machine.state
        (partition,) = mirrored_partition(state, world.number)
        return partition.left_open

    world.bring(in_transaction(0, 5))
    assert told() is None
    gap(world, 2, 40)
    assert told() == 0
    world.bring(in_transaction(40, 6))
    assert told() == 0
    world.bring(source_marker(42, 5))
    assert told() is None


def test_a_gap_is_of_a_mirror() -> None:
    world = MirrorWorld()
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    refused = gap(world, 0, 40)
    assert code(refused) == "MIRROR"
    name = world.machine.state.topics.by_id["m"].name
    assert refused.message == f"topic {name!r} is no mirror"


def test_a_topic_that_is_no_mirror_is_named_when_it_is_promoted() -> None:
    world = MirrorWorld()
    world.machine.apply(CreateTopicCommand("t", "own", 1, {}, 1))
    refused = world.machine.apply(PromoteMirrors(["t"], 9, "me"))
    assert code(refused) == "MIRROR"
    assert isinstance(refused, Rejection)
    assert refused.message == "topic 'own' is no mirror"


# --- promotion ------------------------------------------------------------------------------------


def test_promotion_ends_a_mirror_once() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0, epoch=12))
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    world.machine.apply(PromoteMirrors(["m"], 10, "me"))
    state = world.machine.state
    assert (state.mirrors.topics["m"].promoted_ms, state.mirrors.topics["m"].ends) == (9, [3])
    assert not isinstance(world.open("publisher", "m"), Rejection)
    entry = world.machine.state.sessions.input_of("publisher", world.number)
    assert entry is not None
    world.bytes.put(entry.number, source_batch(0))
    (merge,) = world.run_dry()
    assert merge.epoch > 12
    assert world.next_offset == 6


def test_what_the_sidecar_still_brings_counts_no_more() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0))
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    (merge,) = world.bring(source_batch(3))
    assert merge.extras is None
    assert [part.verdict for part in merge.ranges] == [Verdict.FENCED]
    assert world.next_offset == 3


def test_all_of_a_pattern_are_promoted_or_none() -> None:
    world = MirrorWorld()
    world.machine.apply(CreateTopicCommand("t", "own", 1, {}, 0))
    assert code(world.machine.apply(PromoteMirrors(["m", "t"], 9, "me"))) == "MIRROR"
    assert world.machine.state.mirrors.of_topic("m") is not None


def test_open_transactions_end_at_promotion(tmp_path: Path) -> None:
    world = MirrorWorld()
    world.bring(in_transaction(0, 5), source_marker(2, 5), in_transaction(3, 6))
    state = world.machine.state
    assert state.mirrors.places[world.number].open == {6: (0, 3)}
    assert state.mirrors.first_open(world.number) == 3
    world.machine.apply(PromoteMirrors(["m"], 9, "me"))
    (merge,) = world.run_dry()
    assert merge.extras is not None
    assert not state.mirrors.owed
    assert code(world.machine.apply(msgspec.structs.replace(merge, base_offset=6))) != ""
    log = world.merged(tmp_path).log
    assert log.last_stable_offset == log.next_offset == 6
    assert state.open_transactions.in_log(world.number).ended == {}


# --- positions of groups --------------------------------------------------------------------------


def follow(world: MirrorWorld, offset: int, at_ms: int) -> int | None:
    """Where the group is then."""
    position = CommittedOffset(offset, -1, "", at_ms)
    world.machine.apply(FollowSource([("g", [(world.number, position)])], []))
    group = world.machine.state.groups.by_id.get("g")
    known = None if group is None else group.offsets.get(world.number)
    return None if known is None else known.offset


def test_positions_never_lead_the_log_and_are_raised_later() -> None:
    world = MirrorWorld()
    assert follow(world, 5, 100) == 0
    world.bring(source_batch(0, 8))
    assert follow(world, 5, 100) == 5


def test_the_newer_commit_counts_not_the_higher_offset() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0, 8))
    assert follow(world, 5, 100) == 5
    assert follow(world, 2, 200) == 2
    assert follow(world, 7, 150) == 2


def test_a_group_that_is_used_here_is_its_own() -> None:
    world = MirrorWorld()
    world.bring(source_batch(0, 8))
    follow(world, 5, 100)
    own = CommittedOffset(6, -1, "", 300)
    world.machine.apply(CommitOffsets([("g", [(world.number, own)])], only_empty=False))
    assert follow(world, 3, 400) == 6


def test_versions_are_in_force_from_where_they_are_at_the_source() -> None:
    world = MirrorWorld()
    world.machine.apply(FollowSource([], [(world.number, [(0, 1), (70, 2)])]))
    assert world.machine.state.partitions.by_number[world.number].schema_since == ((0, 1), (70, 2))


# --- what is stored -------------------------------------------------------------------------------


def test_commands_and_the_state_are_read_back() -> None:
    world = MirrorWorld()
    merges = world.bring(in_transaction(0, 5), source_batch(2))
    commands: list[Any] = [
        *merges,
        CreateTopicCommand("n", "x", 1, {}, 5, source=SOURCE),
        MirrorGap(1, 0, 5, 5, None, 7, "why"),
        PromoteMirrors(["m"], 9, "me"),
        FollowSource([("g", [(1, CommittedOffset(1, 2, "m", 3))])], [(1, [(0, 1)])]),
    ]
    assert decode_commands(encode_commands(commands)) == commands
    again = StateMachine.decode(world.machine.encode())
    assert again.state.mirrors == world.machine.state.mirrors


def test_a_session_of_a_mirror_opens_runs_as_any_other() -> None:
    world = MirrorWorld()
    again = OpenRunCommand(SESSION, SESSION, "i", 1, "second", None, None)
    assert code(world.machine.apply(again)) == "RUN_OPEN"
    assert isinstance(world.machine.apply(OpenInputCommand(SESSION, "m", 0)).number, int)
