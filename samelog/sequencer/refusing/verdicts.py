"""What is known of batches that were checked, and of those that are being checked.

Invariant: a verdict is found only for the very bytes that it is about, of the same input, by the
same version of the schema and the same oldest one that counts; what is kept, and what is asked at a
time, is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from samelog.typed.judging import BatchMisfits

KEPT_BYTES = 32 << 20
ASKED_BYTES = 8 << 20
_CRC = slice(17, 21)

By = tuple[int, int]
"""By what a batch is judged: the newest version, and the oldest that counts."""
_BatchName = tuple[int, By, bytes, int]
"""Input, by what, CRC and size: bytes that have these in common are compared."""


class Verdicts:
    """One replica's."""

    def __init__(self) -> None:
        self._known: OrderedDict[_BatchName, tuple[bytes, BatchMisfits]] = OrderedDict()
        self._known_bytes = 0
        self._asked: dict[_BatchName, bytes] = {}
        self._asked_bytes = 0

    def find(self, number: int, by: By, batch: bytes) -> BatchMisfits | None:
        """What does not fit; None: nobody has said yet."""
        key = number, by, batch[_CRC], len(batch)
        found = self._known.get(key)
        if found is None or found[0] != batch:
            return None
        self._known.move_to_end(key)
        return found[1]

    def begin(self, number: int, by: By, batches: Sequence[bytes]) -> list[bytes] | None:
        """Those of an input's next batches that are to be asked for, from now on under way; None:
        there is no room for all of them.
        """
        wanted: list[bytes] = []
        for batch in batches:
            if self.find(number, by, batch) is not None:
                continue
            key = number, by, batch[_CRC], len(batch)
            if key in self._asked:
                continue
            if self._asked and self._asked_bytes + len(batch) > ASKED_BYTES:
                return wanted or None
            self._asked[key] = batch
            self._asked_bytes += len(batch)
            wanted.append(batch)
        return wanted

    def end(
        self, number: int, by: By, batches: Sequence[bytes], found: Sequence[BatchMisfits]
    ) -> None:
        """They are under way no more; `found`: what was said of each, if anything was."""
        for batch in batches:
            key = number, by, batch[_CRC], len(batch)
            if self._asked.pop(key, None) is not None:
                self._asked_bytes -= len(batch)
        for batch, misfits in zip(batches, found, strict=False):
            self._keep((number, by, batch[_CRC], len(batch)), batch, misfits)

    def _keep(self, key: _BatchName, batch: bytes, misfits: BatchMisfits) -> None:
        before = self._known.pop(key, None)
        self._known_bytes += len(batch) - (0 if before is None else len(before[0]))
        self._known[key] = batch, misfits
        while self._known_bytes > KEPT_BYTES and len(self._known) > 1:
            _, (oldest, _) = self._known.popitem(last=False)
            self._known_bytes -= len(oldest)
