"""Asks the cluster for every file there ever was of merged logs.

Invariant: files come a page at a time: a million of them take no memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from samelog.admin.answers import LogFile
from samelog.admin.client import ask
from samelog.admin.requests import LogHistory
from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig


def log_history(
    config: ClientConfig | str, topic: str = "", *, partition: int | None = None
) -> Iterator[LogFile]:
    """Every file of merged logs there ever was, in order of topic, partition and offset.

    Args:
        config: a client's configuration, or its file.
        topic: of this topic only.
        partition: of this partition only.

    Yields:
        LogFile: offsets [first_offset, next_offset), times in ms since the epoch (-1: none, or
        not known), `archived_ms` -1 while the file is there, `size_bytes` before it was archived,
        `sha256` of a sealed one, `reason` of an archived one; `copied_ms`, `copy_url` and
        `copy_formats` of one that was copied before.

    Raises:
        AdminError: no node answers, or there is no such topic.
    """
    client = load_client(config) if isinstance(config, str) else config
    wanted = topic or UNSET, UNSET if partition is None else partition
    request = LogHistory(*wanted)
    while True:
        page = ask(client, request)
        yield from page.files
        if not page.more:
            return
        last = page.files[-1]
        request = LogHistory(*wanted, last.topic, last.partition, last.next_offset)
