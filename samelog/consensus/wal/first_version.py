"""What the log files of the first version add up to: each group had a log of its own, and a
snapshot's mark said by its place in the log whether it had replaced entries.

Such a log is read once, when a member that has it starts (docs/formats.md, "Write-ahead log").

Invariant: the records that `carried_over` gives are, in the shared log, the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from samelog.consensus.errors import CorruptRecord
from samelog.consensus.types import Entry, HardState
from samelog.consensus.wal.codec import Base, SnapshotMark, WalRecord


def carried_over(records: Iterable[WalRecord]) -> list[WalRecord]:
    """The same log, from its first entry on. Raises CorruptRecord if an entry is missing between
    two that are there.
    """
    found = _replay(records)
    if found.entries:
        base = found.entries[0].index - 1
    else:
        base = 0 if found.mark is None else found.mark.last_index
    marks = [] if found.mark is None else [found.mark]
    return [Base(base), *found.entries, *marks, found.hard_state]


@dataclass(slots=True)
class _Recovered:
    """What the records of all log files, read in order, add up to."""

    hard_state: HardState
    entries: list[Entry]
    mark: SnapshotMark | None
    replaced_log: bool = False
    """Whether a snapshot took the place of entries, so that the next one must follow its mark."""


def _replay(records: Iterable[WalRecord]) -> _Recovered:
    """Fold records into a node's state: later entries replace earlier ones from their index on.

    Where the first entry stands cannot be judged here: what was before it, marks of later snapshots
    apart, may have gone with files that were removed. Raises CorruptRecord if an entry is missing
    between two that are there.
    """
    recovered = _Recovered(HardState(0, None, 0), [], None)
    for record in records:
        if isinstance(record, Entry):
            _replay_entry(recovered, record)
        elif isinstance(record, HardState):
            recovered.hard_state = record
        elif isinstance(record, SnapshotMark):
            _replay_mark(recovered, record)
    return recovered


def _replay_entry(recovered: _Recovered, entry: Entry) -> None:
    entries = recovered.entries
    if entries:
        next_index = entries[-1].index + 1
    elif recovered.replaced_log and recovered.mark is not None:
        next_index = recovered.mark.last_index + 1
    else:
        next_index = entry.index
    if entry.index > next_index:
        raise CorruptRecord(f"entries {next_index} to {entry.index - 1} are missing from the log")
    if entries and entry.index < next_index:
        del entries[max(0, entry.index - entries[0].index) :]
    entries.append(entry)


def _replay_mark(recovered: _Recovered, mark: SnapshotMark) -> None:
    """A snapshot whose end is not in the log replaced the log."""
    recovered.mark = mark
    entries = recovered.entries
    position = mark.last_index - entries[0].index if entries else -1
    if position < 0:
        return
    if position >= len(entries) or entries[position].term != mark.last_term:
        entries.clear()
        recovered.replaced_log = True
