"""How a `dedup_id` appears in record batches: as a producer id of its own.

Publishers that share a dedup id number their records alike. The number (any rising 64-bit integer)
travels in a batch's `baseSequence` modulo 2^31, under the producer id that this module derives
from the dedup id, epoch 0, so that a batch can be judged by its header alone. Invariant: equal
dedup ids give equal producer ids, on every host.
"""

from __future__ import annotations

from hashlib import sha256

DEDUP_EPOCH = 0
DEDUP_SEQUENCES = 1 << 31  # ids that differ by a multiple of this look alike in a header

_DOMAIN = b"samelog dedup "
_POSITIVE = (1 << 63) - 1


def dedup_producer_id(dedup_id: str) -> int:
    """Return the 63-bit producer id under which records numbered for `dedup_id` travel."""
    digest = sha256(_DOMAIN + dedup_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") & _POSITIVE
