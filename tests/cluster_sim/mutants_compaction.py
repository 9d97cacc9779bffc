"""Planted bugs in compaction."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from samelog.archiver.compaction import CompactCommand, Compactions
from samelog.archiver.compaction_plan import ClosedSegment, CompactionFacts
from samelog.format.compaction import CompactedSegment
from samelog.format.file_names import segment_bases
from samelog.sequencer.cluster.repair import merged as repair
from samelog.sequencer.compaction.compactor import Compactor
from samelog.sequencer.compaction.ordering import CompactionOrders
from samelog.sequencer.state.units import logs
from samelog.store.merged import generations, rewriting
from samelog.store.merged.generations import Generations
from samelog.store.merged.rewriting import Rewriting


@contextmanager
def drop_tombstones_at_once() -> Iterator[None]:
    """A tombstone goes in the first compaction that sees it."""

    def tombstones_below(self: Compactions, before_ms: int) -> int:
        return 1 << 62

    with patch.object(Compactions, "tombstones_below", tombstones_below):
        yield


@contextmanager
def compact_the_active_file() -> Iterator[None]:
    """What is compacted may grow."""
    original = CompactionOrders._facts

    def facts(self: CompactionOrders, here: Any, known: Any, size: int) -> CompactionFacts:
        found, last = original(self, here, known, size), here.log.segments()[-1]
        growing = ClosedSegment(last.base_offset, last.next_offset, last.size, 0)
        return replace(found, closed=[*found.closed, growing], limit=last.next_offset)

    def apply_order(partition: Any, command: CompactCommand) -> str | None:
        partition.compacted = partition.compactions
        partition.compacted.number, partition.compacted.order = command.number, command
        return None

    with ExitStack() as stack:
        stack.enter_context(patch.object(CompactionOrders, "_facts", facts))
        stack.enter_context(patch.object(logs, "apply_order", apply_order))
        yield


@contextmanager
def look_for_some_keys_only() -> Iterator[None]:
    """Keys for which there was no memory are not looked for in another turn."""

    def all_of_it(self: Rewriting) -> Generator[int, None, None]:
        yield from self._turn()
        self._kernel.next_turn()
        yield from self._write()

    with patch.object(Rewriting, "_all", all_of_it):
        yield


@contextmanager
def swap_without_sync() -> Iterator[None]:
    """New segments take the place of the old ones before they are durable."""
    original = rewriting._Output.end

    def end(self: Any, number: int, last: Any) -> CompactedSegment:
        with patch.object(type(self._file), "datasync", lambda file: None):
            return original(self, number, last)

    async def has_written(self: Compactor, here: Any, lacking: list[CompactedSegment]) -> bool:
        written = here.log.generations.written.get(lacking[-1].number, [])
        return all(each in written for each in lacking)

    with ExitStack() as stack:
        stack.enter_context(patch.object(rewriting._Output, "end", end))
        stack.enter_context(patch.object(Compactor, "_has_written", has_written))
        yield


@contextmanager
def go_on_inside() -> Iterator[None]:
    """Who ends inside of what was compacted asks for what follows, which nobody has."""
    with patch.object(repair, "place_to_cut", lambda log, segments: None):
        yield


@contextmanager
def leave_what_was_covered() -> Iterator[None]:
    """Files of segments that are part of a compacted one keep their names."""
    original = Generations._put_away

    def put_away(self: Generations, first: int, stop: int, names: set[str]) -> None:
        kept = {each.base for each in self.segments}
        with patch.object(
            generations,
            "segment_bases",
            lambda names: [base for base in segment_bases(names) if base in kept],
        ):
            original(self, first, stop, names)

    with patch.object(Generations, "_put_away", put_away):
        yield


COMPACTION = (
    drop_tombstones_at_once,
    compact_the_active_file,
    look_for_some_keys_only,
    swap_without_sync,
    go_on_inside,
    leave_what_was_covered,
)
