"""Why partitions are mirrored no further, written down for `samelog mirror status`.

Invariant: the file decides nothing. A sidecar that restarts tries every partition again, and a
reason counts only while the mirror ends where it was stopped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import msgspec

from samelog.format.directory_files import Versioned
from samelog.format.errors import LogFormatError
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file

log = logging.getLogger(__name__)

FILE = "stopped.json"
LIMIT_BYTES = 32 << 20
"""Of 10,000 partitions, each with a reason of 3,000 bytes."""


class MirrorStop(msgspec.Struct, frozen=True):
    """The mirror and the source's log of a stopped partition, where the mirror ends, and why."""

    topic_id: str
    log_id: str
    next_offset: int
    reason: str

    def is_at(self, topic_id: str, log_id: str, next_offset: int) -> bool:
        """Return whether a partition is still the stopped one, without progress since then."""
        return (self.topic_id, self.log_id, self.next_offset) == (topic_id, log_id, next_offset)


class StoredStops(Versioned, frozen=True, kw_only=True):
    """The whole file. Keys are `topic/partition`."""

    stopped: dict[str, MirrorStop]


class MirrorStops:
    """The stopped partitions of one sidecar."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, FILE)
        self._stopped: dict[str, MirrorStop] = {}
        self._is_saved = True

    def get(self, mirror: str, partition: int) -> MirrorStop | None:
        """Return why a partition was stopped, or None if it was not."""
        return self._stopped.get(_key(mirror, partition))

    def put(self, mirror: str, partition: int, stop: MirrorStop) -> None:
        """Note that a partition was stopped."""
        self._stopped[_key(mirror, partition)] = stop
        self._is_saved = False

    def save(self) -> None:
        """Write the file if it lacks a stop. A failure is logged: mirroring does not need it."""
        if self._is_saved:
            return
        self._is_saved = True
        stored = StoredStops(stopped=dict(self._stopped))
        try:
            write_json_file(
                OsFileSystem(), self._path, stored, durable=False, limit_bytes=LIMIT_BYTES
            )
        except (DiskFault, LogFormatError) as error:
            log.warning("samelog mirror status cannot say why partitions stopped: %s", error)


def read_stops(directory: str) -> Mapping[str, MirrorStop]:
    """Return the stops that a sidecar has written down. Raises LogFormatError, DiskFault."""
    path = os.path.join(directory, FILE)
    stored = read_json_file(OsFileSystem(), path, StoredStops, limit_bytes=LIMIT_BYTES)
    return {} if stored is None else stored.stopped


def _key(mirror: str, partition: int) -> str:
    return f"{mirror}/{partition}"
