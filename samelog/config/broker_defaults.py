"""What counts for topics that set nothing themselves, under Kafka's own names.

Invariant: None means what the node's own settings say.
"""

from __future__ import annotations

from dataclasses import dataclass

NUM_PARTITIONS = "num.partitions"
AUTO_CREATE = "auto.create.topics.enable"
MESSAGE_MAX_BYTES = "message.max.bytes"
RACK = "broker.rack"
NAMES = (NUM_PARTITIONS, AUTO_CREATE, MESSAGE_MAX_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDefaults:
    """`num_partitions`: of topics made without saying how many; `auto_create`: whether asking for a
    topic makes it (None: as the node's auto_create_topics); `message_max_bytes`: of a record batch,
    with its header (None: as long as the node's max_record_bytes allows).
    """

    num_partitions: int = 1
    auto_create: bool | None = None
    message_max_bytes: int | None = None

    def by_name(self) -> dict[str, int | bool]:
        """What is set, by Kafka's names."""
        values = (self.num_partitions, self.auto_create, self.message_max_bytes)
        named = zip(NAMES, values, strict=True)
        return {name: value for name, value in named if value is not None}
