"""The schemas of topics as a client knows them: asked of the cluster, and kept in a file of each
topic for when no node answers.

Several objects, also of other processes, may share a directory: the file decides. Invariant: what
is given was said by a node of the topic's present log, and a topic that one of them forgot is known
to none of them. `since` counts only for records before `complete`; for what lies behind, the
cluster is asked again (docs/typed.md, T1).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

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
LAG_S = 5.0
"""How long nodes may lag that still answer for a deleted topic."""
RETRY_S = 0.05
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
    is_deleted: bool = False
    """Whether the topic of this id was deleted, so that nothing is known."""

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


class KnownVersion(NamedTuple):
    """A version of a topic's schema, among all that are known of that topic."""

    number: int
    known: TopicSchemas

    @property
    def schema(self) -> Schema:
        """The version."""
        return self.known.schemas[self.number]


class _NodeLags(NobodyAnswers):
    """A node answers for a topic that is known to be deleted."""


class KnownSchemas:
    """What one client knows. May be used from several threads."""

    def __init__(self, fs: FileSystem, directory: str, config: ClientConfig | None) -> None:
        """`directory`: of the session, or of the copies. Without `config` nobody is asked."""
        self._fs = fs
        self._directory = os.path.join(directory, DIRECTORY)
        self._config = config
        self._known: dict[str, tuple[int, TopicSchemas]] = {}
        """What each topic's file has, and when that file was written."""
        self._lock = threading.Lock()

    def known(self, topic: str) -> TopicSchemas | None:
        """What was heard last, of whatever log that is not known to be deleted. Raises
        UnsupportedFormat.
        """
        with self._lock:
            found = self._current(topic)
        return None if found is None or found.is_deleted else found

    def is_gone(self, topic: str, topic_id: str) -> bool:
        """Whether the topic of this id was deleted, or another topic has the name."""
        with self._lock:
            found = self._current(topic)
        return found is not None and (found.is_deleted or found.topic_id != topic_id)

    def _current(self, topic: str) -> TopicSchemas | None:
        """What the file has. The lock is held."""
        path = self._path(topic)
        try:
            written_ns = self._fs.modified_ns(path)
        except NoSuchFile:
            return None
        known = self._known.get(topic)
        if known is not None and known[0] == written_ns:
            return known[1]
        found = self._read(topic)
        if found is not None:
            self._known[topic] = written_ns, found
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
        self._make_directory()  # so that a deletion that is learnt meanwhile is noted
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
        """Add an answer of the cluster to what was heard of this log before. `told`: by partition,
        up to where and what. Raises DiskFault; NobodyAnswers: the log was deleted.
        """
        with self._lock:
            before = self._current(topic)
            partitions: dict[str, PartitionVersions] = {}
            if before is not None and before.topic_id == topic_id:
                if before.is_deleted:
                    raise _NodeLags(
                        f"the node that answers does not know yet that topic {topic!r} was deleted"
                    )
                partitions |= before.partitions
                texts = max(texts, before.texts, key=len)
            partitions |= {str(number): PartitionVersions(*each) for number, each in told.items()}
            found = TopicSchemas(topic=topic, topic_id=topic_id, texts=texts, partitions=partitions)
            self._write(found, durable=durable)
        return found

    def forget(self, topic: str, topic_id: str) -> None:
        """Forget a topic that was deleted: the next one of its name has other schemas. Its id stays
        in the file, so that a node that lags does not bring it back. Raises DiskFault.
        """
        with self._lock:
            before = self._current(topic)
            is_other = before is not None and before.topic_id != topic_id
            if is_other or not self._fs.exists(self._directory):
                return
            gone = TopicSchemas(
                topic=topic, topic_id=topic_id, texts=(), partitions={}, is_deleted=True
            )
            self._write(gone, durable=False)

    def _write(self, schemas: TopicSchemas, *, durable: bool) -> None:
        """The lock is held."""
        path = self._path(schemas.topic)
        self._make_directory()
        write_json_file(self._fs, path, schemas, durable=durable)
        self._known[schemas.topic] = self._fs.modified_ns(path), schemas

    def _make_directory(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)

    def version(self, topic: str, version: int | None, *, of: str | None = None) -> KnownVersion:
        """A version of a topic's schema, or the newest one. Who asks for the newest and gets no
        answer gets the newest that was heard of. `of`: the id of the log. Raises NoSchema.
        """
        found = self._of_version(topic, version, of)
        if not found.newest:
            raise NoSchema(f"topic {topic!r} has no schema: samelog schema set {topic} FILE")
        chosen = found.newest if version is None else version
        if chosen not in found.schemas:
            raise NoSchema(f"topic {topic!r} has no version {chosen}: it has 1 to {found.newest}")
        return KnownVersion(chosen, found)

    def _of_version(self, topic: str, version: int | None, of: str | None) -> TopicSchemas:
        """What has this version, as far as it is known. Raises NoSchema."""
        known = self._known_of(topic, of)
        if known is not None and version in known.schemas:
            return known
        deadline = time.monotonic() + LAG_S
        while True:
            try:
                return self.learn(topic, of=of)
            except _NodeLags:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)
            except NobodyAnswers:
                known = self._known_of(topic, of)  # it may have been forgotten meanwhile
                if known is None or version is not None:
                    raise
                return known

    def _known_of(self, topic: str, of: str | None) -> TopicSchemas | None:
        known = self.known(topic)
        return known if known is not None and of in (None, known.topic_id) else None

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
