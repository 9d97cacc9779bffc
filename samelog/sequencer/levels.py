"""Feature levels: what versions of samelog that run side by side agree on.

A build supports every level of this table. A cluster has one level, in its replicated state; an
entry raises it, once every member supports the new one (docs/upgrades.md). What a level brings is
used from that entry on: a kind of command or message says which level it `needs`. So a new level is
one line here, and `needs` in each kind that it brings.

Invariant: a level keeps its meaning. Who meets something of a level that it does not support takes
no part any more, and skips nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

LEVELS: Mapping[int, str] = {
    1: "Everything of the first version.",
    2: "A leader plans what it has received: records are acknowledged after one round.",
    3: "Many commands in one entry; what is set over Kafka's protocol; batches of up to 64 MiB.",
    4: "Transactions.",
    5: "Topics have schemas.",
    6: "Compacted topics.",
    7: "Data groups: partitions need not be on all members.",
    8: "Records may be left out of what is merged; keys count once; `__consumer_offsets`, "
    "`__transaction_state`; hard resets and recovery of data groups; groups of subscribers; "
    "sites; views; `__events`; mirrors of topics of other clusters; `schema.enforce`; quotas of "
    "client ids; partitions that leave group 0.",
}
"""Level -> what it brings."""
ONE_ROUND = 2
ACCESS = LONG_BATCHES = 3
TRANSACTIONS = 4
SCHEMAS = 5
COMPACTION = 6
GROUPS = 7
LEAVING = KEYS = STATE_TOPICS = GROUP_RECOVERY = NATIVE_GROUPS = SITES = VIEWS = EVENTS = 8
MIRRORS = ENFORCING = CLIENT_QUOTAS = CONVERTING = 8
LOWEST, SUPPORTED = min(LEVELS), max(LEVELS)


class OtherVersion(Exception):
    """The Raft log, or a snapshot, has something that this build does not know."""

    remedy = (
        "upgrade samelog on this node to the version of the other members and restart it; nothing "
        "of its files is lost: docs/upgrades.md"
    )

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: another version of samelog wrote it")


def check_level(level: int, supported: int) -> None:
    """Raises OtherVersion if a build supports less than the cluster has."""
    if level > supported:
        raise OtherVersion(f"the feature level is {level}, this node supports {supported}")
