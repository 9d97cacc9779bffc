"""What a writer that stages records asks of the cluster, and the answers.

Records are staged in open runs of sessions of their own (`OpenRun.stage`); here the writer waits
until they are safe, publishes those of one batch at once, or gives them up.

Invariant: as in `samelog.wire.admin`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from samelog.wire.bounds import Identifier, Message, Place63, RunEnd, ShortText

STAGED_RUNS_MAX = 10_000
"""In one request."""


class StagedRun(NamedTuple):
    """One open run, and where it ends: all that is staged in it."""

    session: ShortText
    run_id: Identifier
    ends: tuple[RunEnd, ...]


class HoldStage(Message, frozen=True, tag=40):
    """Are these runs safe? Answered by StageHeld once a majority holds them durably, by NotLeader,
    or by Failed (NOT_READY: ask again).
    """

    stage: ShortText
    runs: tuple[StagedRun, ...]


class StageHeld(Message, frozen=True, tag=40):
    """They are: their sender need not keep them."""


class PublishStage(Message, frozen=True, tag=41):
    """Publish these runs as a batch of the writer: all their records or none. Batches are numbered
    upwards; one that is published already is dropped. Answered by StagePublished, NotLeader or
    Failed.
    """

    stage: ShortText
    writer: ShortText
    batch: Place63
    runs: tuple[StagedRun, ...]


class StagePublished(Message, frozen=True, tag=41):
    """The batch is published; `is_new`: by this request."""

    is_new: bool


class DropStage(Message, frozen=True, tag=42):
    """Give up what is staged in these runs, not what is published. Answered by StageDropped."""

    stage: ShortText
    runs: tuple[StagedRun, ...]


class StageDropped(Message, frozen=True, tag=42):
    """It is given up."""


StageRequest: TypeAlias = HoldStage | PublishStage | DropStage
StageResponse: TypeAlias = StageHeld | StagePublished | StageDropped
