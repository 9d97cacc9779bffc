"""What a replica of a group pulls from the other members through, and what takes session bytes.

Invariant: there is one connection for it to every other member, whatever groups they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from samelog.replicator.pull.repair_pull import RepairPull
from samelog.sequencer.ingest.intake import Intake


class PeerPulls(Protocol):
    """The bulk connections of this member."""

    def get(self, number: int) -> RepairPull | None:
        """The connection to a member; None if it is none any more."""

    def name(self, number: int) -> str:
        """The name of a member."""


@dataclass(slots=True)
class IntakeSink:
    """Takes pulled session bytes in, as if pushed."""

    intake: Intake
    number: int
    run: int
    has_enough: Callable[[], bool]

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        """Bytes of a roll came."""
        self.intake.restore(self.number, self.run, file, byte, data)

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """A roll is whole."""
        self.intake.seal(self.number, self.run, file, length)
