"""Takes back what a planner booked of a batch that it does not plan after all.

Invariant: what was undone is as if the batch had never been judged, so its retry counts as new.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samelog.sequencer.merge.dedup import DedupView
from samelog.sequencer.merge.drafts import Draft
from samelog.sequencer.merge.transaction_view import TransactionView
from samelog.sequencer.state.tables.sessions import Input


class Bookings:
    """What was booked of one producer and one input before a batch is judged."""

    def __init__(
        self,
        views: tuple[DedupView, TransactionView],
        draft: Draft,
        entry: Input,
        producer_id: int,
        dedup_id: str,
    ) -> None:
        self._draft, self._learnt, self._begins = draft, draft.learnt, len(draft.begins)
        dedup, transactions = views
        places = [
            *dedup.places(entry, producer_id, dedup_id),
            transactions.place(producer_id, entry.partition),
            *_places_in(draft, entry, producer_id, dedup_id),
        ]
        self._before = [(known, key, _copied(known.get(key))) for known, key in places]

    def undo(self) -> None:
        """Put everything back."""
        self._draft.learnt = self._learnt
        del self._draft.begins[self._begins :]
        for known, key, value in self._before:
            if value is None:
                known.pop(key, None)
            else:
                known[key] = value


def _places_in(
    draft: Draft, entry: Input, producer_id: int, dedup_id: str
) -> Iterator[tuple[dict[Any, Any], Any]]:
    yield draft.sequences, producer_id
    yield draft.watermarks, dedup_id
    yield draft.unwrapped, entry.number


def _copied(value: Any) -> Any:
    return [*value] if isinstance(value, list) else value
