"""Looks into what clients send without holding up the event loop that keeps a node's lease.

A batch of 32 KiB may unpack to a gigabyte. Batches are checked in the turn of the loop in which
they come, as far as that has room, and else in a thread, where neither the codecs nor the kernels
hold the interpreter.

Invariant: no turn of the loop unpacks more than `TURN_BYTES`, nor looks into more than
`PLAIN_SHARE` times as many bytes that are not compressed, whatever clients send.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

import msgspec

from samelog.format.batch import MAX_BATCH_BYTES_DEFAULT
from samelog.format.compression import LIMIT_BYTES_DEFAULT
from samelog.runtime.fair_thread import FairThread
from samelog.runtime.turn_budget import TurnBudget
from samelog.sequencer.ingest.batch_check import (
    OwnProducer,
    Taken,
    TurnIsOver,
    Unpacking,
    sound_batches,
)

T = TypeVar("T")

TURN_BYTES = 1 << 20
"""Unpacked in a millisecond or two."""
PAUSED_TURN_BYTES = 64 << 10
"""Tried in a turn for somebody who has had something refused lately."""
PLAIN_SHARE = 8
"""A byte that is not compressed costs one part in so many of one that is."""
PLAIN_BYTES = 64 << 10
"""Less is not counted: what may come in one turn is bounded where it is read."""


class CheckedBatches(msgspec.Struct, frozen=True):
    """What can be taken, and the bytes that were looked into for that, unpacked."""

    taken: Taken
    bytes: int


class BatchChecker:
    """Of one event loop."""

    def __init__(self, longest_bytes: int = MAX_BATCH_BYTES_DEFAULT) -> None:
        """`longest_bytes`: the largest batch that is taken."""
        self._longest_bytes = longest_bytes
        self._budget = TurnBudget(TURN_BYTES)
        self._in_turn = Unpacking(budget=self._budget)
        self._thread = FairThread("samelog-check")

    def now(
        self,
        who: Hashable,
        data: memoryview,
        own: OwnProducer,
        limit_bytes: int = LIMIT_BYTES_DEFAULT,
    ) -> CheckedBatches | None:
        """Check whole batches of a client; None if this turn has no room for that, then `later`
        does it. `limit_bytes`: what each may unpack to.
        """
        size = len(data)
        if size >= PLAIN_BYTES and not self._may_look_into(size // PLAIN_SHARE):
            return None
        unpacking = self._in_turn
        unpacking.unpacked, unpacking.limit_bytes = 0, limit_bytes
        is_paused = self._thread.paused and self._thread.is_paused(who)
        unpacking.turn_bytes = PAUSED_TURN_BYTES if is_paused else TURN_BYTES
        try:
            longest = self._longest_bytes
            taken = sound_batches(data, batch_bytes=longest, own=own, unpacking=unpacking)
        except TurnIsOver:
            return None
        return CheckedBatches(taken, max(size, unpacking.unpacked))

    def _may_look_into(self, cost: int) -> bool:
        if cost > self._budget.left:
            return False
        self._budget.use(cost)
        return True

    async def later(
        self,
        who: Hashable,
        data: memoryview,
        own: OwnProducer,
        limit_bytes: int = LIMIT_BYTES_DEFAULT,
    ) -> CheckedBatches:
        """The same, in a thread, when it is this client's turn; so `own` is asked there, and
        `data` must stay.
        """
        work = partial(self._check, data, own, limit_bytes)
        return await self._thread.run(who, work, _is_refused)

    async def look(self, who: Hashable, work: Callable[[], T]) -> T:
        """What `work` returns, which looks into records in the same thread."""
        return await self._thread.run(who, work, lambda _: False)

    def _check(self, data: memoryview, own: OwnProducer, limit_bytes: int) -> CheckedBatches:
        unpacking = Unpacking(limit_bytes)
        taken = sound_batches(data, batch_bytes=self._longest_bytes, own=own, unpacking=unpacking)
        return CheckedBatches(taken, max(len(data), unpacking.unpacked))


def _is_refused(checked: CheckedBatches) -> bool:
    return checked.taken.refusal is not None
