"""What snapshots of a pull client's copies mean for whoever reads them.

Invariant: whatever keeps a copy from growing for good is raised; what may pass is only told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from samelog.format.errors import LogFormatError
from samelog.replicator.client_errors import TopicDeleted
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.options import PullStatus
from samelog.subscriber.errors import (
    COPY_KEPT,
    CopyStopped,
    LogReset,
    OffsetOutOfRange,
    UnknownTopic,
)
from samelog.wire.errors import FaultCode
from samelog.wire.pull.copies import CopyState
from samelog.wire.pull.refusal import Refusal

log = logging.getLogger(__name__)

FINAL_PROBLEMS = (FaultCode.NOT_AUTHORISED, FaultCode.WRONG_CLUSTER)
"""Asking again will not help."""


class CopySnapshot(msgspec.Struct, frozen=True):
    """One copy, as the pull client had it."""

    state: CopyState
    fault: Refusal | LogFormatError | None
    is_begun: bool
    is_caught_up: bool
    cluster_end: int | None
    first_end: int | None
    asked_for: int | None
    successor: str
    log_id: str

    @property
    def is_deleted(self) -> bool:
        """Whether its topic was deleted, and its log not only replaced."""
        return self.state is CopyState.GONE and not self.successor

    def is_news(self, before: CopySnapshot) -> bool:
        """Whether a reader does not notice by itself what has changed."""
        return (
            self.state is not before.state
            or self.is_begun != before.is_begun
            or self.is_caught_up != before.is_caught_up
            or (self.first_end is None) != (before.first_end is None)
            or str(self.fault) != str(before.fault)
        )


def check_copy(name: InputName, copy: CopySnapshot) -> None:
    """Raises LogReset, TopicDeleted, OffsetOutOfRange, CopyStopped."""
    topic, partition = name
    fault = copy.fault
    if copy.successor:
        raise LogReset(topic, partition)
    if copy.is_deleted:
        raise TopicDeleted(topic, COPY_KEPT, log_id=copy.log_id)
    if isinstance(fault, Refusal) and fault.code is FaultCode.OUT_OF_RANGE and not copy.is_begun:
        raise OffsetOutOfRange(topic, partition, str(fault), earliest=fault.earliest)
    if copy.state is CopyState.STOPPED:
        raise CopyStopped(f"copying of {topic}-{partition} has stopped: {fault}")


class WantedCopies:
    """What a reader expects of the cluster. `must_exist`: a topic that the cluster does not know is
    an error, not something to wait for, and so is a partition of `chosen` that no topic has.
    """

    def __init__(self, chosen: frozenset[int] | None = None, *, must_exist: bool) -> None:
        self._chosen = chosen
        self._must_exist = must_exist
        self._warned = ""

    def check(self, status: PullStatus, topics: Iterable[str]) -> None:
        """Raise as `check_topics`, and UnknownTopic for a partition that no topic has; or warn of
        it once, because it may be added.
        """
        check_topics(status.problems, must_exist=self._must_exist)
        counts = {name: status.partitions.get(name) for name in topics}
        missing = missing_partition(self._chosen, counts)
        if missing and self._must_exist:
            raise UnknownTopic(missing)
        if missing and missing != self._warned:
            log.warning("%s; it is read once it is added", missing)
        self._warned = missing


def check_topics(problems: Mapping[str, Refusal], *, must_exist: bool) -> None:
    """Raises CopyStopped; if the topics must exist, UnknownTopic."""
    for topic, problem in problems.items():
        if problem.code in FINAL_PROBLEMS:
            raise CopyStopped(f"copying of topic {topic!r} is refused: {problem}")
        if must_exist and problem.code is FaultCode.UNKNOWN_TOPIC:
            raise UnknownTopic(str(problem))


def missing_partition(chosen: frozenset[int] | None, counts: Mapping[str, int | None]) -> str:
    """Describe the chosen partitions that no topic has; empty if there are none. `counts`: how many
    each topic has; None: not known yet.
    """
    known = {name: count for name, count in counts.items() if count is not None}
    if chosen is None or not known or len(known) < len(counts):
        return ""
    missing = [number for number in sorted(chosen) if number >= max(known.values())]
    if not missing:
        return ""
    told = ", ".join(f"{name!r} has {_counted(count)}" for name, count in sorted(known.items()))
    return f"{told}, no partition {', '.join(map(str, missing))}"


def _counted(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def explain(
    copies: Mapping[InputName, CopySnapshot], status: PullStatus | None, config_problem: str
) -> str:
    """Why not all copies have caught up."""
    parts = [
        f"{topic}-{partition} is {copy.state.name.lower()}"
        + ("" if copy.fault is None else f": {copy.fault}")
        for (topic, partition), copy in copies.items()
        if not copy.is_caught_up
    ]
    if status is not None:
        parts += [f"topic {topic!r}: {fault}" for topic, fault in status.problems.items()]
        if not status.node:
            parts.append(f"not connected to {status.address}: {status.last_error}")
    if config_problem:
        parts.append(f"configuration refused: {config_problem}")
    return "; ".join(parts) or "nothing was heard of the cluster yet"
