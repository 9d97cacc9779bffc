"""Reads merged logs from local files, and keeps the local copies up to date."""

from __future__ import annotations

from shiplog.subscriber.async_subscriber import AsyncSubscriber
from shiplog.subscriber.errors import (
    CopyStopped,
    LogReset,
    NotCaughtUp,
    OffsetNotHere,
    OffsetOutOfRange,
    SubscriberClosed,
    SubscriberError,
    TopicDeleted,
    UnknownTopic,
)
from shiplog.subscriber.start import AutoOffsetReset, StartAt
from shiplog.subscriber.subscriber import Subscriber

__all__ = [
    "AsyncSubscriber",
    "AutoOffsetReset",
    "CopyStopped",
    "LogReset",
    "NotCaughtUp",
    "OffsetNotHere",
    "OffsetOutOfRange",
    "StartAt",
    "Subscriber",
    "SubscriberClosed",
    "SubscriberError",
    "TopicDeleted",
    "UnknownTopic",
]
