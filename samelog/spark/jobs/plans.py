"""What a job is to check: tasks for the executors, and what planning has found already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from samelog.spark.jobs.findings import Finding, Outcome


class Check(Protocol):
    """One task; it is pickled, so it holds names, not open files."""

    @property
    def size(self) -> int:
        """About so many bytes are read."""

    def check(self) -> Outcome:
        """Do it, on an executor."""


@dataclass
class Plan:
    """Added to by whoever looks at a place."""

    tasks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def deal(tasks: list[Check], count: int) -> list[list[Check]]:
    """The tasks in at most `count` shares of about as many bytes."""
    shares: list[list[Check]] = [[] for _ in range(max(1, min(count, len(tasks))))]
    sizes = [0] * len(shares)
    for task in sorted(tasks, key=lambda task: -task.size):
        least = sizes.index(min(sizes))
        shares[least].append(task)
        sizes[least] += task.size
    return shares
