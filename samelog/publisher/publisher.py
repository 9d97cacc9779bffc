"""The publisher: appends records to local files, and never waits for the cluster unless asked to.

This is its life: it opens a session, ships it, waits for the cluster where it is asked to, and lets
the session go. Invariant: what was appended is shipped, or stays in the session's directory.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, Unpack

from samelog.config.tables.client import OnRecreate
from samelog.format.arguments import check_choice
from samelog.publisher.appender import Appender
from samelog.publisher.errors import (
    NotMerged,
    NotShipping,
    PublisherClosed,
    RecordsDamaged,
    ShippingStopped,
)
from samelog.publisher.lanes import Lane, LingerThread
from samelog.publisher.options import (
    PublisherKeywords,
    PublisherOptions,
    resolve,
)
from samelog.publisher.records import PartitionPositions, Positions
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.client_errors import TopicDeleted
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem

if TYPE_CHECKING:
    from samelog.admin.registry import SchemaRegistry
    from samelog.format.directory_files import RefusedRecord
    from samelog.publisher.shipper import Shipper

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
RELEASE_TIMEOUT_S = 1.0
"""Of a close, for the cluster to close the run, so that its last files can be removed."""


class Publisher(Appender):
    """Appends to topics, in one session. A context manager.

    All methods may be called from any thread; one lock keeps appends apart. A forked child must
    make a publisher of its own, with a session of its own: the parent's raises PublisherClosed.

    Args:
        topic: where records go unless an append names another topic.
        session: this publisher's name, unique in the cluster and kept across restarts.
        directory: holds the sessions, each in a directory of its name; it must survive restarts.
            Default: `dir` in [publisher] of the config.
        config: client.toml, its https:// URL, or its value. None: local files only, for a sidecar.
        ship: False: write local files only although there is a config.
        partitions: with how many a topic is created that is not there. One that is there has what
            it has: the first append to a topic asks the cluster, for up to 2 s, and more partitions
            count soon after they are added. Without an answer, or without shipping, the given
            number counts, or 1; with a dedup_id always, so give all its publishers the same. A key
            decides by Kafka's murmur2; records without a key stay with one partition for
            `batch_bytes`, then go to the next.
        dedup_id: shared by publishers that append the same records under the same ids; each record
            is then merged once.
        linger_ms: 0: every append is written at once, as a batch of its own. Otherwise records wait
            up to this long, in memory, to share a batch.
        batch_bytes: size of a batch, at most 1 MiB.
        max_record_bytes: size of an encoded record; nodes take up to 1 MiB by default.
        budget_bytes: limit of what the session holds on disk until it is merged. Default: the
            config's, or 8 GiB.
        on_full: "block" appends until something is released, with a WARNING once a minute, or
            "raise" BudgetExceeded.
        roll_bytes: a file is sealed at this size. Default: the config's, or 1 GiB; less with a
            small budget.
        stage: the records are held by the cluster until this is published (`staging`); the session
            may never have been used.
        compression: "none", "gzip", "snappy", "lz4" or "zstd": of each batch, where that makes it
            smaller, when it is closed; so it gains much only where records share batches. Default:
            the config's, or "none".
        session_header: every record says whose it is, in the header `samelog.session`.
        registry: URL of a schema registry (http://name:password:8081). `append_rows` writes
            values in Confluent's wire format then, and registers the topic's schema, which has the
            format avro, as that of the subject `TOPIC-value`.
        on_recreate: what becomes of records that are not merged when their topic is deleted.
            "hold", the default: they are held, with all that follows in their partition, until
            `samelog session continue` or `discard` decides. "continue" ships them to the next topic
            of that name, "discard" drops them.
        on_refused: called, in another thread, with each record that nodes refused because it does
            not fit the topic's schema (`schema.enforce=node`). It is in `refused` of the session's
            directory by then, and stays there.

    Raises:
        DirectoryInUse: another process, or another publisher of this one, has the session.
        ValueError, InvalidName, ConfigError: an option or the config is wrong.
        UnsupportedFormat, CorruptLog, DiskFault: the directory cannot be used.
    """

    def __init__(self, topic: str, *, session: str, **options: Unpack[PublisherKeywords]) -> None:
        """Open the session's directory, and start shipping it."""
        self._fs, self._on_refused = OsFileSystem(), options.get("on_refused")
        self._on_recreate = check_choice(
            "on_recreate", options.get("on_recreate", OnRecreate.HOLD), OnRecreate
        )
        resolved = resolve(topic, session, options)
        registry = _registry(options.get("registry"))
        super().__init__(_open_writer(self._fs, resolved), resolved, self._learn)
        self._registry = registry
        self._sync_lock = threading.Lock()
        self._sync_failure: DiskFault | None = None
        self._closed = False
        self._shipper = self._start_shipper()
        self._linger = self._start_linger() if self._linger_s > 0 else None
        _living.add(self)

    def _start_linger(self) -> LingerThread:
        name = f"samelog-linger-{self._options.session}"
        return LingerThread(self._lingering, self._lanes.all, name)

    def _start_shipper(self) -> Shipper | None:
        config = self._options.config
        if config is None or not self._options.ship:
            return None
        from samelog.publisher.shipper import Shipper

        try:
            left = self._writer.left_behind()
            return Shipper(
                self._options.directory,
                config,
                left,
                self._learned,
                self._note_refused,
                on_recreate=self._on_recreate,
                on_left=self._forget_schema,
            )
        except BaseException:
            self._writer.close()
            raise

    def _learn(self, topic: str) -> int:
        if self._shipper is None:
            return 0
        return self._shipper.learn_topic(topic, self._options.partitions or 1)

    def _learned(self, topics: Mapping[str, int], checked: frozenset[str]) -> None:
        """In the shipper's thread."""
        self._lanes.learned(topics)
        self._checked = checked
        self._plain_lane = None

    def _note_refused(self, records: Sequence[RefusedRecord]) -> None:
        """In the shipper's thread."""
        if self._on_refused is None:
            return
        for record in records:
            try:
                self._on_refused(record)
            except Exception:  # the seam: it is kept, whatever becomes of it there
                log.exception("on_refused has failed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- after appending -----------------------------------------------------------------------

    def flush(self, *, durable: bool = False) -> None:
        """Write what lingers; `durable` also waits until everything appended is on disk.

        Raises: as `append`; after a failed sync, every durable flush raises that failure.
        """
        if self._closed:
            raise PublisherClosed("the publisher is closed")
        for lane in self._taken_lanes():
            self._locked(lane.flush)
        if durable:
            self._sync()

    def _taken_lanes(self) -> list[Lane]:
        with self._lock:
            return self._lanes.all()

    def _sync(self) -> None:
        with self._sync_lock:
            if self._sync_failure is not None:
                raise self._sync_failure
            with self._lock:
                unsynced = self._writer.take_unsynced()
            try:
                unsynced.sync(self._fs)
                self._writer.directory.check_place()
                unsynced.mark(self._fs)
            except DiskFault as fault:
                self._sync_failure = fault
                raise

    @property
    def positions(self) -> Positions:
        """How far each partition is appended, acknowledged and merged."""
        appended = self._appended()
        if self._shipper is None:
            return Positions(appended)
        return Positions(appended, self._shipper.acknowledged(), self._shipper.merged())

    def _appended(self) -> PartitionPositions:
        with self._lock:
            return dict(self._writer.positions())

    def wait_merged(self, timeout: float | None = None) -> None:
        """Flush, and wait until everything appended so far is merged, durably on a majority; also
        what earlier publishers of this session left in its directory.

        Raises:
            NotMerged: a TimeoutError: not within `timeout` seconds; names what is missing, and the
                nodes that cannot be reached. PublishingRefused, a NotMerged, comes at once: a
                grant is missing, or a quota is used up.
            TopicDeleted: the topic was deleted before all was merged, and the rest is held.
            NotShipping: this publisher only writes local files.
            RecordsDamaged: all else is merged, but bytes on disk were damaged. It names the file
                that has a copy of the bytes. It is raised once for each damage, and again by each
                later publisher of the session until that file is removed.
        """
        self.flush()
        if self._shipper is None:
            raise NotShipping(
                "this publisher only writes local files: give it a config, or watch the sidecar"
            )
        self._shipper.wait_merged(tuple(self._appended().items()), timeout)

    def wait_held(self, timeout: float | None = None) -> None:
        """Of a stage: flush, and wait until a node holds everything appended durably.

        Raises as `wait_merged`; RecordsDamaged comes at once, and names file, byte and reason: a
        stage with damaged files is not published.
        """
        self.flush()
        if self._shipper is None:
            raise NotShipping("this publisher only writes local files: give it a config")
        self._shipper.wait_held(tuple(self._appended().items()), timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Write what lingers, end the run, and let go of the session; more calls do nothing.

        If this publisher ships, up to `timeout` seconds are spent on having everything that the
        session has on disk acknowledged, and a moment on having its last files released. What is
        not stays in the directory, a warning says so, and the session's next publisher (or a
        sidecar) ships it.

        Raises: as `append`, when something that lingers cannot be written.
        """
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + timeout
        _living.discard(self)
        if self._linger is not None:
            self._linger.stop()
        with self._lock:
            self._lanes.close()
        try:
            for lane in self._taken_lanes():
                self._locked(lane.close, deadline)
        finally:
            try:
                with self._lock:
                    self._writer.close()
            finally:
                self._stop_shipping(deadline)

    def _stop_shipping(self, deadline: float) -> None:
        if self._shipper is None:
            return
        try:
            if self._options.stage is not None:
                return  # whoever publishes the stage waits for it
            appended = tuple(self._appended().items())
            with _damage_logged(self._options.session):
                self._shipper.wait_acknowledged(appended, max(0.0, deadline - time.monotonic()))
            self._shipper.wait_released(min(RELEASE_TIMEOUT_S, deadline - time.monotonic()))
        except (NotMerged, ShippingStopped, TopicDeleted) as error:
            log.warning(
                "session %r is closed before all is shipped: %s", self._options.session, error
            )
        finally:
            self._shipper.stop()

    def _abandon(self) -> None:
        """In a forked child: the files and threads are the parent's."""
        self._lock = threading.Lock()
        self._lingering = threading.Condition(self._lock)
        if self._shipper is not None:
            self._shipper.abandon()
        self._closed, self._linger, self._shipper = True, None, None
        self._writer.abandon(
            "this publisher belongs to the parent process: make one in the child, with a session "
            "of its own"
        )


@contextmanager
def _damage_logged(session: str) -> Iterator[None]:
    """Log RecordsDamaged instead of raising it."""
    try:
        yield
    except RecordsDamaged as error:
        log.warning("session %r: %s", session, error)


def _registry(url: str | None) -> SchemaRegistry | None:
    """Raises ValueError."""
    if url is None:
        return None
    from samelog.admin.registry import SchemaRegistry

    return SchemaRegistry(url)


def _open_writer(fs: OsFileSystem, options: PublisherOptions) -> SessionWriter:
    os.makedirs(os.path.dirname(options.directory), mode=0o700, exist_ok=True)
    return SessionWriter.open(
        fs,
        options.directory,
        session=options.session,
        cluster=None if options.config is None else options.config.cluster,
        budget_bytes=options.budget_bytes,
        roll_bytes=options.roll_bytes,
        dedup_id=options.dedup_id,
        stage=options.stage,
    )


_living: weakref.WeakSet[Publisher] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for publisher in list(_living):
        publisher._abandon()
    _living.clear()


os.register_at_fork(after_in_child=_abandon_in_child)
