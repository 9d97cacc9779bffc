"""How a sidecar's mirrors are: for its log, its metrics, and what it answers.

Invariant: a lag that is not known is never told as a number (docs/mirror.md, M25).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionProgress:
    """One partition: how far source and mirror are, and what keeps it, if anything does."""

    mirror: str
    partition: int
    mirrored: int = 0
    end: int | None = None
    """Of the source; None: it is not known."""
    problem: str = ""
    refused: str = ""
    """Why the destination's nodes do not take what is brought."""
    is_stopped: bool = False
    """It does not go on by itself."""
    stop: int | None = None
    """Where it ends, if it is a restore."""

    @property
    def lag(self) -> int | None:
        """Records that are at the source and not here."""
        return None if self.end is None else max(0, self.end - self.mirrored)


@dataclass(slots=True)
class MirrorProgress:
    """All of a sidecar's."""

    partitions: dict[tuple[str, int], PartitionProgress] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    """Topics of the source that are not mirrored at all, and why."""
    own_groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Mirror -> groups that have positions of their own there."""
    brought_bytes: int = 0
    source_fault: str = ""
    destination_fault: str = ""
    heard_s: float | None = None
    """When the source was heard of last, by a clock that only rises."""
    is_over: bool = False
    """Everything up to the ends is mirrored."""

    def of(self, mirror: str, partition: int) -> PartitionProgress:
        """One partition's."""
        key = mirror, partition
        if key not in self.partitions:
            self.partitions[key] = PartitionProgress(mirror, partition)
        return self.partitions[key]

    def amount(self) -> tuple[int, int | None]:
        """How many offsets are mirrored, of how many there are to be: up to the ends of a restore,
        else to those of the source; None: somewhere that is not known.
        """
        known = tuple(self.partitions.values())
        goals = [each.end if each.stop is None else each.stop for each in known]
        done = sum(each.mirrored for each in known)
        ends = [goal for goal in goals if goal is not None]
        is_known = bool(ends) and len(ends) == len(goals)
        return done, max(done, sum(ends)) if is_known else None

    def lost_source(self, reason: str) -> None:
        """The source does not answer: no end of it is known any more."""
        self.source_fault = reason
        for each in self.partitions.values():
            each.end = None

    def problems(self) -> list[str]:
        """What keeps mirrors, for people."""
        found = [f"source: {self.source_fault}"] if self.source_fault else []
        found += [f"destination: {self.destination_fault}"] if self.destination_fault else []
        found += [f"{topic}: {reason}" for topic, reason in self.topics.items()]
        found += [
            f"{each.mirror}-{each.partition}: {each.problem or each.refused}"
            for each in self.partitions.values()
            if each.problem or each.refused
        ]
        return found
