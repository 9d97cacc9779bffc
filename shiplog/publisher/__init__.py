"""Appends records to local session logs, and ships them."""

from __future__ import annotations

from shiplog.publisher.async_publisher import AsyncPublisher
from shiplog.publisher.errors import (
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
from shiplog.publisher.places import Place, Positions, TopicPartition
from shiplog.publisher.publisher import Publisher

__all__ = [
    "AppendTooLarge",
    "AsyncPublisher",
    "BudgetExceeded",
    "DiskFull",
    "InvalidId",
    "NotMerged",
    "NotShipping",
    "Place",
    "Positions",
    "Publisher",
    "PublisherClosed",
    "PublisherError",
    "ShippingStopped",
    "TopicPartition",
]
