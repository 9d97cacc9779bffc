"""Reads merged logs from local files, and keeps the local copies up to date.

Names are resolved when first used: who only reads files need not load what keeps copies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samelog.format.transactions import Isolation
    from samelog.replicator.client_errors import SubscriberError, TopicDeleted
    from samelog.subscriber.async_subscriber import AsyncSubscriber
    from samelog.subscriber.errors import (
        CopyStopped,
        GroupRefused,
        LogReset,
        NotCaughtUp,
        NotCommitted,
        OffsetNotHere,
        OffsetOutOfRange,
        PositionLost,
        SubscriberClosed,
        UnknownTopic,
        UnreadableRecord,
    )
    from samelog.subscriber.filters import Corrupt
    from samelog.subscriber.groups.membership import Claim
    from samelog.subscriber.groups.position_table import PositionTable
    from samelog.subscriber.groups.processed import processed_offset
    from samelog.subscriber.groups.sharing import InHand, OwnPositions
    from samelog.subscriber.start import AutoOffsetReset, NamedStart
    from samelog.subscriber.subscriber import Subscriber
    from samelog.subscriber.typed_rows import TypedRow
    from samelog.typed.schema import NobodyAnswers, NoSchema

__all__ = [
    "AsyncSubscriber",
    "AutoOffsetReset",
    "Claim",
    "CopyStopped",
    "Corrupt",
    "GroupRefused",
    "InHand",
    "Isolation",
    "LogReset",
    "NamedStart",
    "NoSchema",
    "NobodyAnswers",
    "NotCaughtUp",
    "NotCommitted",
    "OffsetNotHere",
    "OffsetOutOfRange",
    "OwnPositions",
    "PositionLost",
    "PositionTable",
    "Subscriber",
    "SubscriberClosed",
    "SubscriberError",
    "TopicDeleted",
    "TypedRow",
    "UnknownTopic",
    "UnreadableRecord",
    "processed_offset",
]

_MODULES = {
    "AsyncSubscriber": "samelog.subscriber.async_subscriber",
    "AutoOffsetReset": "samelog.subscriber.start",
    "Isolation": "samelog.format.transactions",
    "CopyStopped": "samelog.subscriber.errors",
    "LogReset": "samelog.subscriber.errors",
    "NotCaughtUp": "samelog.subscriber.errors",
    "OffsetNotHere": "samelog.subscriber.errors",
    "OffsetOutOfRange": "samelog.subscriber.errors",
    "Corrupt": "samelog.subscriber.filters",
    "NamedStart": "samelog.subscriber.start",
    "NoSchema": "samelog.typed.schema",
    "NobodyAnswers": "samelog.typed.schema",
    "TypedRow": "samelog.subscriber.typed_rows",
    "Subscriber": "samelog.subscriber.subscriber",
    "SubscriberClosed": "samelog.subscriber.errors",
    "SubscriberError": "samelog.replicator.client_errors",
    "TopicDeleted": "samelog.replicator.client_errors",
    "UnknownTopic": "samelog.subscriber.errors",
    "UnreadableRecord": "samelog.subscriber.errors",
    "Claim": "samelog.subscriber.groups.membership",
    "GroupRefused": "samelog.subscriber.errors",
    "InHand": "samelog.subscriber.groups.sharing",
    "NotCommitted": "samelog.subscriber.errors",
    "OwnPositions": "samelog.subscriber.groups.sharing",
    "PositionLost": "samelog.subscriber.errors",
    "PositionTable": "samelog.subscriber.groups.position_table",
    "processed_offset": "samelog.subscriber.groups.processed",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value
