"""One unit of work with many participants, of which all do their part or none: two-phase commit.

It is begun, participants join and prepare, it is decided once, and each participant carries the
decision out once. Who participates, and what there is to carry out, is the caller's: partitions of
a transaction, or groups that hold what was staged. The unit is replicated state, so it goes on
whoever dies, and whoever carries out may do so twice: only the first time counts.

A unit with a timeout is aborted when it is overdue; one without waits for its decision for ever.

Invariant: a decision never changes; commit is decided only when all participants are prepared, and
nobody joins afterwards; the unit is done when all participants have carried it out.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Decision(IntEnum):
    """What became of a unit."""

    NONE = 0
    COMMIT = 1
    ABORT = 2


class Step(IntEnum):
    """How far a participant is."""

    JOINED = 0
    PREPARED = 1
    """It can carry out either decision, whatever happens."""
    DONE = 2


class TwoPhase(msgspec.Struct):
    """A unit of work. `number` tells it from others of its owner."""

    number: int = 0
    began_ms: int = -1
    timeout_ms: int = 0
    """0: it has none."""
    decision: Decision = Decision.NONE
    participants: dict[int, Step] = {}

    @property
    def is_open(self) -> bool:
        """Whether it was begun and is not decided."""
        return self.number > 0 and self.decision is Decision.NONE

    @property
    def is_done(self) -> bool:
        """Whether it is decided and carried out everywhere."""
        return self.decision is not Decision.NONE and not self.unfinished()

    def unfinished(self) -> list[int]:
        """The participants that have yet to carry out what is decided, or will be."""
        return [who for who, step in self.participants.items() if step is not Step.DONE]

    def join(self, participant: int, *, is_prepared: bool = False) -> bool:
        """Take part, once; whether that can still be."""
        if not self.is_open:
            return False
        self.participants.setdefault(participant, Step.JOINED)
        return not is_prepared or self.prepared(participant)

    def prepared(self, participant: int) -> bool:
        """A participant can carry out either decision; whether that is news to an open unit."""
        if not self.is_open or self.participants.get(participant) is None:
            return False
        self.participants[participant] = Step.PREPARED
        return True

    def decide(self, decision: Decision) -> bool:
        """Decide; whether this is the decision now, perhaps since earlier."""
        if self.decision is not Decision.NONE or not self.number:
            return self.decision is decision
        if decision is Decision.COMMIT and Step.JOINED in self.participants.values():
            return False
        self.decision = decision
        return True

    def carried_out(self, participant: int) -> bool:
        """A participant has done its part of what is decided; whether that is news."""
        if self.decision is Decision.NONE or self.participants.get(participant) in (
            None,
            Step.DONE,
        ):
            return False
        self.participants[participant] = Step.DONE
        return True

    def leave(self, participant: int) -> None:
        """A participant is gone, with all it could have done its part with: that counts as done."""
        self.participants.pop(participant, None)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether it has been open for longer than it may."""
        return self.is_open and 0 < self.timeout_ms <= now_ms - self.began_ms
