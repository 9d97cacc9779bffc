"""What snapshots of a pull client's copies mean for whoever reads them.

Invariant: whatever keeps a copy from growing for good is raised; what may pass is only told.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def check_topics(problems: Mapping[str, Refusal], *, must_exist: bool) -> None:
    """Raises CopyStopped; if the topics must exist, UnknownTopic."""
    for topic, problem in problems.items():
        if problem.code in FINAL_PROBLEMS:
            raise CopyStopped(f"copying of topic {topic!r} is refused: {problem}")
        if must_exist and problem.code is FaultCode.UNKNOWN_TOPIC:
            raise UnknownTopic(str(problem))


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
