"""Planted bugs in keys that count once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.format.errors import CorruptLog, LogFormatError
from samelog.sequencer.keys import fetching
from samelog.sequencer.keys.coverage import KeyCoverage
from samelog.sequencer.keys.fetching import IndexHolders, KeyFetches
from samelog.sequencer.keys.keeper import KeyKeeper
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.keys.lookups import KeyLookups
from samelog.sequencer.keys.partition_keys import KeyPiece, PartitionKeys
from samelog.sequencer.merge import drafts
from samelog.sequencer.merge.bookings import Bookings
from samelog.sequencer.merge.drafts import EntryBudget
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.state.tables.keys import KeyedPartition, KeysTable
from samelog.sequencer.state.tables.transfers import TransfersTable
from samelog.sequencer.state.units import topics
from samelog.store.keys import key_store
from samelog.store.keys.key_pages import KeySnapshot
from samelog.store.keys.key_store import FOLDER, LmdbKeys


@contextmanager
def drop_for_what_is_lost() -> Iterator[None]:
    """What was proposed counts though it may be lost."""
    with patch.object(PartitionKeys, "forget_proposals", lambda self: None):
        yield


@contextmanager
def count_what_failed() -> Iterator[None]:
    """Records of a batch that was not planned after all count."""
    with patch.object(KeyFilter, "take_back", lambda self: None):
        yield


@contextmanager
def plan_what_is_not_covered() -> Iterator[None]:
    """A new leader goes by what its index has."""
    with patch.object(Planner, "_most_bytes", lambda self, draft: 1 << 20):
        yield


@contextmanager
def index_what_is_not_durable() -> Iterator[None]:
    """The index gets keys as soon as they are read."""
    original = PartitionKeys.due

    def due(self: PartitionKeys, durable: int) -> KeyPiece | None:
        return original(self, 1 << 62)

    with patch.object(PartitionKeys, "due", due):
        yield


@contextmanager
def keep_an_index_that_is_ahead() -> Iterator[None]:
    """An index that reaches beyond its log is used."""

    def open_store(self: KeyKeeper, merged: Any) -> Any:
        path = f"{merged.path}/{FOLDER}"
        return self._parts.host.open_keys(self._parts.fs, path)

    with patch.object(KeyKeeper, "_open_store", open_store):
        yield


@contextmanager
def end_before_the_entries() -> Iterator[None]:
    """The end is stored by a transaction of its own, before the entries."""
    original = LmdbKeys.advance

    def advance(self: LmdbKeys, entries: Any, end: int, sums: Any) -> None:
        original(self, [], abs(end), sums)
        original(self, entries, end, sums)

    with patch.object(LmdbKeys, "advance", advance):
        yield


@contextmanager
def believe_one_digest() -> Iterator[None]:
    """What a single member tells of a block is agreed."""

    def tell(self: KeyedPartition, command: Any) -> None:
        self.agreed.setdefault(command.block, command.digest)

    with patch.object(KeyedPartition, "tell", tell):
        yield


@contextmanager
def use_what_differs() -> Iterator[None]:
    """An index that differs from what is agreed is used further."""
    with patch.object(KeyKeeper, "_begin_anew", lambda self, number, here, why: None):
        yield


@contextmanager
def believe_any_peer() -> Iterator[None]:
    """What a peer tells is not compared with what is agreed."""
    original = KeyFetches.fetch

    async def fetch(self: KeyFetches, number: int, store: Any, below: int, keyed: Any) -> Any:
        return await original(self, number, store, below, KeyedPartition())

    with patch.object(KeyFetches, "fetch", fetch):
        yield


@contextmanager
def floor_at_the_oldest_mark() -> Iterator[None]:
    """A key counts only from the newest step of a time horizon on."""
    original = KeyedPartition.merged

    def merged(self: KeyedPartition, base: int, stop: int, at_ms: int, settings: Any) -> None:
        original(self, base, stop, at_ms, settings)
        self.floor = self.marks[-1][0] if self.marks else self.floor

    with patch.object(KeyedPartition, "merged", merged):
        yield


@contextmanager
def take_transactions() -> Iterator[None]:
    """Transactional batches are judged as others are."""
    original = Planner._judge_producer

    def judge(self: Planner, entry: Any, facts: Any, draft: Any) -> Any:
        keyed, self._machine.state.keys.by_partition = self._machine.state.keys.by_partition, {}
        try:
            return original(self, entry, facts, draft)
        finally:
            self._machine.state.keys.by_partition = keyed

    with patch.object(Planner, "_judge_producer", judge):
        yield


@contextmanager
def change_what_counts() -> Iterator[None]:
    """`dedup.key` may be set later, or go with compaction."""

    def no_problem(before: object, settings: object) -> Sequence[str] | None:
        return None

    with (
        patch.object(topics, "problem_with_keys", no_problem),
    ):
        yield


@contextmanager
def keep_what_was_booked() -> Iterator[None]:
    """The sequences of a batch that was not planned after all count."""
    with patch.object(Bookings, "undo", lambda self: None):
        yield


@contextmanager
def join_whatever_comes_out() -> Iterator[None]:
    """Only what goes in bounds a range."""

    def charge(self: EntryBudget, taken: int, *others: int) -> None:
        return None

    with (
        patch.object(drafts, "JOINED_BYTES", 1 << 62),
        patch.object(EntryBudget, "charge", charge),
        patch.object(Planner, "_most_bytes", lambda self, draft: 1 << 40),
    ):
        yield


@contextmanager
def forget_keys_with_the_horizon() -> Iterator[None]:
    """What was merged before a horizon became a time does not count."""
    original = KeyedPartition.merged

    def merged(self: KeyedPartition, base: int, stop: int, at_ms: int, settings: Any) -> None:
        is_first = not self.marks
        original(self, base, stop, at_ms, settings)
        if is_first and self.marks:
            self.floor = base

    with patch.object(KeyedPartition, "merged", merged):
        yield


@contextmanager
def keep_digests_of_void_records() -> Iterator[None]:
    """What was agreed of blocks whose records were given up stays agreed."""
    with patch.object(KeyedPartition, "forget", lambda self, base, stop: None):
        yield


@contextmanager
def throw_away_for_any_error() -> Iterator[None]:
    """An index that cannot be opened is rebuilt for any reason."""

    def fault(path: str, operation: str, error: Exception) -> CorruptLog:
        return CorruptLog(path, 0, str(error))

    with patch.object(key_store, "_fault", fault):
        yield


@contextmanager
def take_the_unreadable_for_new() -> Iterator[None]:
    """Keys that the index cannot be asked for count as new."""

    async def ask(self: KeyLookups, known: PartitionKeys) -> None:
        try:
            known.told(known.store.find(sorted(known.asked)))
        except LogFormatError:
            known.told({})

    with patch.object(KeyLookups, "ask", ask):
        yield


@contextmanager
def lead_until_all_is_fetched() -> Iterator[None]:
    """A leader waits for what it lacks before it looks at anything else."""
    original = KeyKeeper._look_at

    async def look_at(self: KeyKeeper, number: int, here: Any) -> None:
        await original(self, number, here)
        if number in self._fetching:
            await self._fetching[number]

    with patch.object(KeyKeeper, "_look_at", look_at):
        yield


@contextmanager
def believe_in_short_steps() -> Iterator[None]:
    """Marks of a longer horizon are taken for those of the shorter one."""

    def step(self: KeyedPartition, step_ms: int) -> None:
        self.step_ms = step_ms

    with patch.object(KeyedPartition, "_step", step):
        yield


@contextmanager
def believe_old_answers() -> Iterator[None]:
    """What an index got since it was asked does not count."""
    original = PartitionKeys.stored

    def stored(self: PartitionKeys, piece: KeyPiece) -> None:
        hidden, self.asked, self._answers = (self.asked, self._answers), set(), {}
        original(self, piece)
        self.asked, self._answers = hidden

    with patch.object(PartitionKeys, "stored", stored):
        yield


@contextmanager
def wait_on_the_event_loop() -> Iterator[None]:
    """A leader that plans waits for the disk of an index."""
    original = PartitionKeys.find

    def find(self: PartitionKeys, keys: Sequence[bytes]) -> dict[bytes, int]:
        found = original(self, keys)
        return self.store.find(keys) if found is None else found

    with patch.object(PartitionKeys, "find", find):
        yield


@contextmanager
def overtake_what_is_put_off() -> Iterator[None]:
    """What follows a batch that cannot be judged yet is planned in its place."""
    original = Planner._take_judged

    def take(self: Planner, entry: Any, place: Any, data: bytearray, draft: Any) -> int:
        taken = original(self, entry, place, data, draft)
        if taken or not self._filters_of(entry.partition):
            return taken
        size = 12 + int.from_bytes(data[8:12], "big") if data else 0
        if len(data) <= size:
            return 0
        behind = place._replace(byte=place.byte + size)
        more = original(self, entry, behind, data[size:], draft)
        return size + more if more else 0

    with patch.object(Planner, "_take_judged", take):
        yield


@contextmanager
def use_pages_again_at_once() -> Iterator[None]:
    """LMDB may change the pages of a state that is still being looked at."""

    def hold(self: KeySnapshot) -> None:
        self._reading.abort()

    with patch.object(KeySnapshot, "hold", hold), patch.object(KeySnapshot, "let_go", hold):
        yield


@contextmanager
def carry_no_keys() -> Iterator[None]:
    """A partition comes to its new group as one whose keys never counted."""
    with patch.object(KeysTable, "import_", lambda *_: None):
        yield


@contextmanager
def seal_before_the_index() -> Iterator[None]:
    """A partition is sealed in its old group before the new one knows the keys of its records."""
    with (
        patch.object(KeyCoverage, "has_covered", lambda *_: True),
        patch("tests.placement.passing_world.Group.has_covered", lambda *_: True),
    ):
        yield


@contextmanager
def ask_the_new_group_only() -> Iterator[None]:
    """Members of a partition's new group ask each other for keys that none of them has."""

    def holders(own: int, ask: Any, elsewhere: Any, number: int) -> IndexHolders:
        return own, ask()

    with patch.object(fetching, "holders_of", holders):
        yield


@contextmanager
def archive_before_the_index() -> Iterator[None]:
    """Records are archived whose keys no index has yet."""
    with patch.object(KeyFilter, "concerns", lambda *_: False):
        yield


@contextmanager
def archive_by_one_index() -> Iterator[None]:
    """Records are archived whose keys the leader alone has."""
    original = Coordinator.majority_indexed

    def majority_indexed(self: Coordinator, partition: int) -> int:
        views = [self.views[self._node]]
        with patch.object(self, "_voting_views", lambda: views):
            return original(self, partition)

    with patch.object(Coordinator, "majority_indexed", majority_indexed):
        yield


@contextmanager
def tell_digests_on_the_way() -> Iterator[None]:
    """Members agree on digests that their new group forgets once the partition is open there."""
    with patch.object(TransfersTable, "is_on_its_way", lambda self, partition: False):
        yield


_FILTER, _STORE = "tests/keys/test_key_filter.py::", "tests/keys/test_key_store.py::"
_NODES, _FETCHING = "tests/keys/test_key_nodes.py::", "tests/keys/test_key_fetching.py::"
_KEEPING, _FAULTS = "tests/keys/test_key_keeping.py::", "tests/keys/test_key_faults.py::"
_PASSING, _MOVING = "tests/placement/test_passing.py::", "tests/sequencer/test_moving_kinds.py::"
_ALL_KNOWN = "test_partitions_pass_with_all_that_is_known_of_them"
KEYS = (
    (
        "keys.1",
        drop_for_what_is_lost,
        _FILTER + "test_what_is_proposed_counts_until_it_may_be_lost",
    ),
    (
        "keys.1",
        count_what_failed,
        _FILTER + "test_what_fails_behind_the_judgement_counts_for_nothing",
    ),
    (
        "keys.2",
        plan_what_is_not_covered,
        _FILTER + "test_a_new_leader_plans_nothing_before_it_knows_all_keys",
    ),
    (
        "keys.2",
        take_the_unreadable_for_new,
        _FAULTS + "test_an_index_that_cannot_be_read_stops_its_partition",
    ),
    (
        "keys.2",
        lead_until_all_is_fetched,
        _KEEPING + "test_a_leader_gives_the_leadership_away_while_it_fetches",
    ),
    ("keys.11", carry_no_keys, _MOVING + "test_a_key_counts_once_wherever_its_partition_moves"),
    ("keys.11", seal_before_the_index, _PASSING + _ALL_KNOWN),
    (
        "keys.11",
        ask_the_new_group_only,
        _KEEPING + "test_of_a_partition_that_comes_its_old_group_is_asked_and_the_leader_is_told",
    ),
    ("keys.11", tell_digests_on_the_way, _PASSING + "test_what_is_known_of_keys_comes_along"),
    (
        "keys.12",
        archive_by_one_index,
        "tests/sequencer/test_coordinator.py::test_a_majority_has_keys_before_records_are_archived",
    ),
    ("keys.12", archive_before_the_index, _KEEPING + "test_what_no_index_has_is_not_archived"),
    ("keys.7", believe_old_answers, _FILTER + "test_what_an_index_gets_while_it_is_asked_counts"),
    (
        "keys.7",
        use_pages_again_at_once,
        _STORE + "test_lookups_read_one_state_while_the_next_ones_are_made",
    ),
    (
        "keys.8",
        overtake_what_is_put_off,
        _FILTER + "test_what_follows_a_batch_that_is_put_off_does_not_overtake_it",
    ),
    ("keys.8", wait_on_the_event_loop, _FILTER + "test_the_event_loop_never_waits_for_a_disk"),
    ("keys.5", believe_in_short_steps, _FAULTS + "test_keys_count_for_a_shorter_horizon_whole"),
    ("keys.3", index_what_is_not_durable, _KEEPING + "test_only_what_is_durable_is_indexed"),
    ("keys.3", keep_an_index_that_is_ahead, _KEEPING + "test_an_index_beyond_its_log_is_made_anew"),
    ("keys.3", end_before_the_entries, _STORE + "test_a_step_that_fails_changes_nothing"),
    ("keys.4", believe_one_digest, _FILTER + "test_a_digest_counts_once_a_majority_tells_the_same"),
    ("keys.4", use_what_differs, _NODES + "test_an_index_that_differs_is_made_anew"),
    ("keys.4", believe_any_peer, _FETCHING + "test_what_differs_from_what_is_agreed_is_said"),
    (
        "keys.1",
        keep_what_was_booked,
        _FAULTS + "test_a_batch_that_is_not_planned_leaves_no_sequence",
    ),
    (
        "keys.1",
        join_whatever_comes_out,
        _FAULTS + "test_what_unpacks_to_much_is_merged_in_small_pieces",
    ),
    (
        "keys.3",
        throw_away_for_any_error,
        _FAULTS + "test_an_index_that_cannot_be_opened_is_kept_and_tried_again",
    ),
    (
        "keys.4",
        keep_digests_of_void_records,
        _FAULTS + "test_digests_of_blocks_with_void_records_count_no_more",
    ),
    (
        "keys.5",
        forget_keys_with_the_horizon,
        _FAULTS + "test_keys_go_on_counting_when_the_horizon_becomes_a_time",
    ),
    ("keys.5", floor_at_the_oldest_mark, _FILTER + "test_a_key_counts_for_so_long"),
    ("keys.6", take_transactions, _FILTER + "test_transactional_batches_are_refused"),
    ("keys.6", change_what_counts, _FILTER + "test_settings_that_do_not_go_together_are_refused"),
)
