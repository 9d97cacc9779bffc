"""Who keeps the local copies: nobody here (a sidecar, or a node), or this process.

Invariant: what a keeper says of the cluster was true when it last heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from samelog.replicator.pull.share import Share


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """One partition's copy, as its keeper knows it."""

    end: int | None
    """The next offset there is, as last heard; None: not heard yet."""
    first_end: int | None
    """The next offset that the cluster had when this keeper first asked; None: not heard yet."""
    asked_for: int | None = None
    """The offset that the copy was begun for; None: the copy was there before, or begins at the
    end, which `first_end` tells.
    """


class Keeper(Protocol):
    """Keeps copies of topics up to date. May be asked from any thread."""

    @property
    def is_local(self) -> bool:
        """Whether nothing is known of the cluster."""

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """The next offsets of copies that only this process appends to, by topic and partition; one
        that is not in it may have grown at any time.
        """

    def kept(self, topic: str, partition: int, held: int) -> KeptCopy | None:
        """A partition whose copy ends with `held`; None: it is not known where it begins."""

    def partitions(self, topic: str) -> frozenset[int] | None:
        """Return the partitions of a topic that are copied; None: only the files show them."""

    def check(self) -> None:
        """Raise what keeps a copy from growing for good. Raises CopyStopped, TopicDeleted, and
        LogReset, until `begin_anew`.
        """

    def begin_anew(self, topic: str, partition: int) -> str:
        """Move the copy of a replaced log away. Returns the id of the new log."""

    def share(self, held: Mapping[tuple[str, int], Share]) -> None:
        """Keep copies of these partitions only, which are the member's of a group."""

    def follow_topics(self, topics: tuple[str, ...], logs: Mapping[str, str]) -> None:
        """Keep copies of these from now on; what was copied of others stays as it is. `logs`: by
        topic, the log that it has now, so that copies of another one are set aside.
        """

    def is_caught_up(self) -> bool:
        """Whether all copies hold what the cluster had when it was last heard of."""

    def wait_caught_up(self, timeout_s: float | None) -> None:
        """Wait until they do. Raises NotCaughtUp, and as `check`."""

    def stop(self) -> None:
        """Stop keeping the copies."""


class NoKeeper:
    """Leaves the copies to another process: the files are all that is known."""

    is_local = True
    ends: Mapping[tuple[str, int], int] = {}

    def kept(self, topic: str, partition: int, held: int) -> KeptCopy | None:
        """The files that are there are the whole copy."""
        return KeptCopy(held, held)

    def partitions(self, topic: str) -> frozenset[int] | None:
        """Return None: only the files show them."""
        return None

    def check(self) -> None:
        """Do nothing: no fault is known."""

    def begin_anew(self, topic: str, partition: int) -> str:
        """Do nothing: the process that keeps the copies restarts them."""
        return ""

    def share(self, held: Mapping[tuple[str, int], Share]) -> None:
        """Do nothing: members of groups have a cluster."""

    def follow_topics(self, topics: tuple[str, ...], logs: Mapping[str, str]) -> None:
        """Do nothing: what is there is known by looking."""

    def is_caught_up(self) -> bool:
        """True: the cluster's end is not known."""
        return True

    def wait_caught_up(self, timeout_s: float | None) -> None:
        """Return at once: the cluster's end is not known."""

    def stop(self) -> None:
        """Do nothing: no copying was started."""
