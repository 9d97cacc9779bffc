"""Kafka-compatible log shipping: what an application imports.

Names are resolved when first used, so that a publisher never loads what only a subscriber needs.
Invariant: everything public is listed in `__all__`; the rest of the package is internal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samelog.admin.client import log_history
    from samelog.format._kernels import Record
    from samelog.publisher import AsyncPublisher, Publisher
    from samelog.replicator.client_errors import TopicDeleted
    from samelog.subscriber import AsyncSubscriber, Subscriber

__version__ = "0.2.0"
__all__ = [
    "AsyncPublisher",
    "AsyncSubscriber",
    "Publisher",
    "Record",
    "Subscriber",
    "TopicDeleted",
    "__version__",
    "log_history",
]

_MODULES = {
    "AsyncPublisher": "samelog.publisher",
    "AsyncSubscriber": "samelog.subscriber",
    "Publisher": "samelog.publisher",
    "Record": "samelog.format._kernels",
    "Subscriber": "samelog.subscriber",
    "TopicDeleted": "samelog.replicator.client_errors",
    "log_history": "samelog.admin.client",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562). Raises ImportError: `from samelog
    import …` would tell of an AttributeError only that the name is not there.
    """
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(module), name)
    except AttributeError as error:
        raise ImportError(f"{module} cannot be imported: {error}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
