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
