"""What the sidecar that mirrors topics answers over HTTP, and tells monitoring.

Invariant: a lag that is not known is no number, and after a while the sidecar is not ready
(docs/mirror.md, M25).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from samelog.admin.requests import AdminRequest
from samelog.http.metrics.common import Sample
from samelog.http.metrics.sidecar import Side
from samelog.http.metrics.table import MIRROR
from samelog.http.sidecar_api import SidecarApi, SidecarKind
from samelog.mirror.progress import MirrorProgress, PartitionProgress
from samelog.runtime.clock import Clock


class MirroringRow(NamedTuple):
    """One partition of a mirror: how many records it lacks (null: nobody knows), and what keeps it.
    `stopped`: it does not go on by itself.
    """

    mirror: str
    partition: int
    mirrored: int
    end: int | None
    lag: int | None
    stopped: bool
    problem: str


class Mirroring(NamedTuple):
    """All mirrors of a sidecar. `silence_s`: how long ago the source was heard of (null: never);
    `refused`: topics without a mirror, and why; `own_groups`: groups that have positions of their
    own in a mirror.
    """

    source_fault: str
    destination_fault: str
    silence_s: float | None
    refused: dict[str, str]
    own_groups: dict[str, tuple[str, ...]]
    partitions: tuple[MirroringRow, ...]


class GetMirroring(AdminRequest[Mirroring], frozen=True):
    """The state of mirroring."""


def mirror_api(
    progress: MirrorProgress, side: Side, clock: Clock, lag_unknown_s: float
) -> SidecarApi:
    """It is ready while the source is heard of."""

    def not_ready() -> str:
        silence = _silence(progress, clock)
        if silence is None:
            return f"the source was not heard of yet: {progress.source_fault or 'it is asked'}"
        if silence <= lag_unknown_s:
            return ""
        return f"the source was not heard of for {silence:.0f} s: {progress.source_fault}"

    kind = SidecarKind(
        GetMirroring,
        lambda: mirroring_view(progress, clock),
        MIRROR,
        lambda: mirroring(progress, clock),
        not_ready,
    )
    return SidecarApi("samelog mirror", side, kind)


def mirroring_view(progress: MirrorProgress, clock: Clock) -> Mirroring:
    """The status."""
    return Mirroring(
        progress.source_fault,
        progress.destination_fault,
        _silence(progress, clock),
        dict(progress.topics),
        dict(progress.own_groups),
        tuple(map(_row, progress.partitions.values())),
    )


def _row(known: PartitionProgress) -> MirroringRow:
    ends = known.mirrored, known.end, known.lag
    return MirroringRow(
        known.mirror, known.partition, *ends, known.is_stopped, known.problem or known.refused
    )


def _silence(progress: MirrorProgress, clock: Clock) -> float | None:
    return None if progress.heard_s is None else clock.now() - progress.heard_s


def mirroring(progress: MirrorProgress, clock: Clock) -> Iterator[Sample]:
    """Samples."""
    yield "samelog_sidecar_directory_faulty", (), False  # it would have ended
    for known in progress.partitions.values():
        name = known.mirror, str(known.partition)
        yield "samelog_mirror_lag_unknown", name, known.lag is None
        if known.lag is not None:
            yield "samelog_mirror_lag_records", name, known.lag
        yield "samelog_mirror_stopped", name, known.is_stopped
        yield "samelog_mirror_records_total", name, known.mirrored
    yield "samelog_mirror_brought_bytes_total", (), progress.brought_bytes
    yield "samelog_mirror_topics_refused", (), len(progress.topics)
    for mirror, own in progress.own_groups.items():
        yield "samelog_mirror_own_groups", (mirror,), len(own)
    silence = _silence(progress, clock)
    if silence is not None:
        yield "samelog_mirror_source_silence_seconds", (), silence
    yield "samelog_mirror_source_faulty", (), bool(progress.source_fault)
    yield "samelog_mirror_destination_faulty", (), bool(progress.destination_fault)
