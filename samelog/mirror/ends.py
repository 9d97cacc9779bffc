"""Where a restore ends: one end for each partition, taken in one round and written down.

Invariant: an end that was written down stays, whatever the source has since; a restart goes on to
the same ends (docs/mirror.md, M26).
"""

from __future__ import annotations

import os
from datetime import datetime

from samelog.admin.mirror_answers import SourceTopic
from samelog.format.directory_files import Versioned
from samelog.mirror.source import SourceCluster, Where
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file

FILE = "ends.json"


class StoredEnds(Versioned, frozen=True, kw_only=True):
    """The whole file: by topic, its log and the ends of its partitions. `until`: as it was asked
    for; `what`: which topics, of which source.
    """

    until: str
    what: str = ""
    logs: dict[str, str]
    ends: dict[str, list[int]]


class RestoreEnds:
    """Of one sidecar; without `until` there are none."""

    def __init__(self, directory: str, until: str, what: str = "") -> None:
        """Raises LogFormatError."""
        self.until, self._what = until, what
        self._fs = OsFileSystem()
        self._path = os.path.join(directory, FILE)
        stored = read_json_file(self._fs, self._path, StoredEnds) if until else None
        is_same = stored is not None and (stored.until, stored.what) == (until, what)
        self._stored = stored if is_same else None

    @property
    def are_known(self) -> bool:
        """Whether they were taken, or there are none."""
        return not self.until or self._stored is not None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that there were."""
        return frozenset(() if self._stored is None else self._stored.ends)

    async def take(self, source: SourceCluster, topics: list[SourceTopic]) -> None:
        """Write down where these topics end now. Raises SourceUnreadable, DiskFault."""
        ends = {}
        for topic in topics:
            ends[topic.topic] = [
                await self._end(source, topic, each.partition, each.next_offset)
                for each in topic.partitions
            ]
        logs = {topic.topic: topic.log_id for topic in topics}
        stored = StoredEnds(until=self.until, what=self._what, logs=logs, ends=ends)
        write_json_file(self._fs, self._path, stored, durable=True)
        self._stored = stored

    async def _end(
        self, source: SourceCluster, topic: SourceTopic, partition: int, end: int
    ) -> int:
        if self.until == "end":
            return end
        moment_ms = int(datetime.fromisoformat(self.until).timestamp() * 1000)
        found = await source.offset_at(Where(topic.topic, topic.log_id, partition), moment_ms)
        return min(end, found)

    def of(self, topic: str, partition: int) -> int | None:
        """Where a partition ends; None: it does not."""
        if not self.until:
            return None
        known = [] if self._stored is None else self._stored.ends.get(topic, [])
        return known[partition] if partition < len(known) else 0
