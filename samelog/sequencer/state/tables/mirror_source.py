"""What a mirror is of: a value that commands about topics and their partitions carry.

Invariant: it never changes as long as its topic lives.
"""

from __future__ import annotations

import msgspec


class MirrorSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a mirror is of: a log of a topic of a cluster. `origins` are the ids of all clusters
    that its records were in before, the source last. `keeps_epochs`: the mirror keeps the leader
    epochs of its batches (samelog's; Kafka's mean nothing to another cluster).
    """

    cluster_id: str
    topic: str
    log_id: str
    origins: list[str]
    keeps_epochs: bool
