"""The schemas of topics as a client knows them: asked of the cluster, and kept in a file of each
topic for when no node answers.

Invariant: what is given was said by a node of the topic's present log. `since` counts only for
records before `complete`; for what lies behind, the cluster is asked again (docs/typed.md, T1).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from samelog.admin.client import topic_schemas
from samelog.admin.errors import AdminError
from samelog.format.directory_files import Versioned, decode_directory_file
from samelog.format.errors import CorruptLog
from samelog.format.names import check_topic_name
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.disk.json_files import write_json_file
from samelog.typed.schema import NobodyAnswers, NoSchema, Schema, parse_schema
from samelog.typed.versions import Since
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.config.tables.client import ClientConfig

log = logging.getLogger(__name__)

DIRECTORY = "schemas"
"""Of the files, in the directory of a session or of copies."""
_LIMIT_BYTES = 128 << 20
_NO_ANSWER = (None, FaultCode.NOT_READY, FaultCode.NOT_LEADER, FaultCode.TIMEOUT)


class PartitionVersions(msgspec.Struct, frozen=True):
    """Which versions were in force in a partition, for all records before `complete`."""

    complete: int = 0
    since: tuple[tuple[int, int], ...] = ()


class TopicSchemas(Versioned, frozen=True, kw_only=True, dict=True):
    """All versions of a topic's schema. The texts are in order, from version 1 on."""

    topic: str
    topic_id: str
    texts: tuple[str, ...]
    partitions: dict[str, PartitionVersions]
    """By decimal number, as JSON has only text keys."""

    @cached_property
    def schemas(self) -> Mapping[int, Schema]:
        """The versions."""
        return {number: _parsed(text) for number, text in enumerate(self.texts, 1)}

    @property
    def newest(self) -> int:
        """The newest version; 0: there is none."""
        return len(self.texts)

    def since(self, partition: int) -> Since:
        """Pairs of (offset, version) of a partition."""
        return self.partitions.get(str(partition), PartitionVersions()).since

    def complete(self, partition: int) -> int:
        """Before which offset that is all."""
        return self.partitions.get(str(partition), PartitionVersions()).complete


_parsed = lru_cache(maxsize=256)(parse_schema)


class KnownSchemas:
    """What one client knows. May be used from several threads."""

    def __init__(self, fs: FileSystem, directory: str, config: ClientConfig | None) -> None:
        """`directory`: of the session, or of the copies. Without `config` nobody is asked."""
        self._fs = fs
        self._directory = os.path.join(directory, DIRECTORY)
        self._config = config
        self._known: dict[str, TopicSchemas] = {}
        self._lock = threading.Lock()

    def known(self, topic: str) -> TopicSchemas | None:
        """What was heard last, of whatever log. Raises UnsupportedFormat."""
        with self._lock:
            found = self._known.get(topic)
            if found is None:
                found = self._read(topic)
                if found is not None:
                    self._known[topic] = found
            return found

    def learn(
        self, topic: str, partition: int | None = None, *, of: str | None = None
    ) -> TopicSchemas:
        """What the cluster says now, of this partition too. `of`: the id of the log that is meant.
        Raises NoSchema, NobodyAnswers.
        """
        if self._config is None:
            raise NobodyAnswers(
                f"the schema of topic {topic!r} is not known here: give a config, so that the "
                "cluster can be asked"
            )
        try:
            page = topic_schemas(self._config, topic, UNSET if partition is None else partition)
        except AdminError as error:
            kind = NobodyAnswers if error.code in _NO_ANSWER else NoSchema
            raise kind(f"the schema of topic {topic!r} cannot be learnt: {error}") from error
        if of not in (None, page.topic_id):
            raise NoSchema(
                f"topic {topic!r} was recreated, or its log was restarted: the schema in force in "
                "the old log is unknown"
            )
        texts = tuple(each.schema for each in page.versions)
        told = {} if partition is None else {partition: (page.next_offset, page.since)}
        return self.note(page.topic, page.topic_id, texts, told)

    def note(
        self,
        topic: str,
        topic_id: str,
        texts: tuple[str, ...],
        told: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]],
        *,
        durable: bool = False,
    ) -> TopicSchemas:
        """Take what somebody says who knows, beside what was heard of this log before. `told`: by
        partition, up to where and what. Raises DiskFault.
        """
        before = self.known(topic)
        partitions: dict[str, PartitionVersions] = {}
        if before is not None and before.topic_id == topic_id:
            partitions |= before.partitions
            texts = max(texts, before.texts, key=len)
        partitions |= {str(number): PartitionVersions(*each) for number, each in told.items()}
        found = TopicSchemas(topic=topic, topic_id=topic_id, texts=texts, partitions=partitions)
        with self._lock:
            self._known[topic] = found
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            write_json_file(self._fs, self._path(topic), found, durable=durable)
        return found

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted: the next one of its name has other schemas."""
        with self._lock:
            self._known.pop(topic, None)
            if self._fs.exists(self._path(topic)):
                self._fs.unlink(self._path(topic))

    def version(self, topic: str, version: int | None) -> tuple[int, Schema]:
        """A version of a topic's schema, or the newest one. Who asks for the newest and reaches
        nobody gets the newest that was heard of. Raises NoSchema.
        """
        found = self._of_version(topic, version)
        if not found.newest:
            raise NoSchema(f"topic {topic!r} has no schema: samelog schema set {topic} FILE")
        chosen = found.newest if version is None else version
        if chosen not in found.schemas:
            raise NoSchema(f"topic {topic!r} has no version {chosen}: it has 1 to {found.newest}")
        return chosen, found.schemas[chosen]

    def _of_version(self, topic: str, version: int | None) -> TopicSchemas:
        """What has this version, as far as anybody knows. Raises NoSchema."""
        known = self.known(topic)
        if known is not None and version in known.schemas:
            return known
        try:
            return self.learn(topic)
        except NobodyAnswers:
            if known is None or version is not None:
                raise
            return known

    # --- files ---------------------------------------------------------------------------------

    def _path(self, topic: str) -> str:
        return os.path.join(self._directory, f"{check_topic_name(topic)}.json")

    def _read(self, topic: str) -> TopicSchemas | None:
        try:
            data = self._fs.read_file(self._path(topic), _LIMIT_BYTES)
        except NoSuchFile:
            return None
        try:
            return decode_directory_file(data, self._path(topic), TopicSchemas)
        except CorruptLog as error:  # the cluster can say it again
            log.warning("what was known of the schema of topic %s is damaged: %s", topic, error)
            return None
