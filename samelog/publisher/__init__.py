"""Appends records to local session logs, and ships them."""

from __future__ import annotations

from samelog.format.directory_files import RefusedRecord
from samelog.format.positions import SessionPosition
from samelog.publisher.async_publisher import AsyncPublisher
from samelog.publisher.errors import (
    AppendTooLarge,
    BudgetExceeded,
    DiskFull,
    InvalidId,
    NotMerged,
    NotShipping,
    PublisherClosed,
    PublishingRefused,
    RecordsDamaged,
    ShippingStopped,
)
from samelog.publisher.publisher import Publisher
from samelog.publisher.records import Positions, TopicPartition
from samelog.replicator.client_errors import PublisherError, TopicDeleted
from samelog.typed.misfits import RowMisfit
from samelog.typed.schema import NobodyAnswers, NoSchema

__all__ = [
    "AppendTooLarge",
    "AsyncPublisher",
    "BudgetExceeded",
    "DiskFull",
    "InvalidId",
    "NoSchema",
    "NobodyAnswers",
    "NotMerged",
    "NotShipping",
    "Positions",
    "Publisher",
    "PublisherClosed",
    "PublisherError",
    "PublishingRefused",
    "RecordsDamaged",
    "RefusedRecord",
    "RowMisfit",
    "SessionPosition",
    "ShippingStopped",
    "TopicDeleted",
    "TopicPartition",
]
