"""Appends records to local session logs, and ships them."""

from __future__ import annotations

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
    PublisherError,
    ShippingStopped,
)
from samelog.publisher.publisher import Publisher
from samelog.publisher.records import Positions, TopicPartition

__all__ = [
    "AppendTooLarge",
    "AsyncPublisher",
    "BudgetExceeded",
    "DiskFull",
    "InvalidId",
    "NotMerged",
    "NotShipping",
    "Positions",
    "Publisher",
    "PublisherClosed",
    "PublisherError",
    "SessionPosition",
    "ShippingStopped",
    "TopicPartition",
]
