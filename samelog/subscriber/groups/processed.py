"""How far a group, or a named subscriber, has come, asked from anywhere.

Invariant: what is answered was committed, or told by the subscriber: it has dealt with what is
before, and perhaps with more.
"""

from __future__ import annotations

import os

from samelog.admin.client import ask
from samelog.admin.group_requests import GetProcessedOffset
from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig


def processed_offset(
    topic: str, name: str, *, config: str | os.PathLike[str] | ClientConfig
) -> dict[int, int]:
    """The offset of the next record to be dealt with, by partition, of a group or a subscriber with
    this name; partitions in which nothing is known are left out.

    Raises:
        AdminError: no node answers, there is no such topic or name, or a right is missing.
    """
    client = load_client(os.fspath(config)) if isinstance(config, str | os.PathLike) else config
    found = ask(client, GetProcessedOffset(name, topic))
    return {each.partition: each.offset for each in found.partitions if each.offset >= 0}
