"""The bounds of numbers that stand in several formats: on disk, on the wire, in Raft's entries.

Invariant: a number of a member, group, replica, partition, input or run is a u32 in every format.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Unsigned32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Count63 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
PartitionIndex = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
"""A partition's place in its topic, which is an int32 to Kafka's clients."""
PARTITIONS = range(1 << 31)
OFFSETS = range(1 << 63)
DEDUP_IDS = range(1 << 63)
BATCH_NUMBERS = range(1 << 63)
"""Of a writer that publishes stages."""
TIMESTAMPS = range(-1 << 63, 1 << 63)
"""In ms since the epoch, as a record holds them."""
VERSIONS = range(1, 1 << 32)
"""Of a schema."""
