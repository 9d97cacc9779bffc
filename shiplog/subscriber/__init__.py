"""Reads merged logs from local files, and keeps the local copies up to date.

Names are resolved when first used: who only reads files need not load what keeps copies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = {
    "AsyncSubscriber": "shiplog.subscriber.async_subscriber",
    "AutoOffsetReset": "shiplog.subscriber.start",
    "CopyStopped": "shiplog.subscriber.errors",
    "LogReset": "shiplog.subscriber.errors",
    "NotCaughtUp": "shiplog.subscriber.errors",
    "OffsetNotHere": "shiplog.subscriber.errors",
    "OffsetOutOfRange": "shiplog.subscriber.errors",
    "StartAt": "shiplog.subscriber.start",
    "Subscriber": "shiplog.subscriber.subscriber",
    "SubscriberClosed": "shiplog.subscriber.errors",
    "SubscriberError": "shiplog.subscriber.errors",
    "TopicDeleted": "shiplog.subscriber.errors",
    "UnknownTopic": "shiplog.subscriber.errors",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value
