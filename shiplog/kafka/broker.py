"""What the API handlers know of the node they run in.

Invariant: whatever is read here is replicated state, or says that it is this node's own view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiplog.sequencer.node import Node


class Broker:
    """One node, as Kafka clients see it."""

    def __init__(self, node: Node) -> None:
        self.node = node
