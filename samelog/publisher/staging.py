"""Staging: records that many writers bring, published together, once, when their batch is complete.

Each writer is a `StagedWriter`: what it has taken in is held by the cluster, and nobody reads it.
Whoever sees the whole batch then calls `publish_stage` with what every writer held: all of it
becomes readable, in one decision of the cluster, or none. A batch that comes again, because nobody
knows whether it was published, is dropped (docs/state-machine.md, "Stages").

Invariant: what `hold` gives is on a majority of the nodes; of a writer that was not
held nobody will read anything. Files in which damage was found are kept.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import (
    AdminRequest,
    DropStage,
    HoldStage,
    PublishStage,
    StagedRun,
)
from samelog.config.tables.client import ClientConfig, Compression
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.publisher.errors import NotStaged, RecordsDamaged
from samelog.publisher.options import as_column_of_pairs
from samelog.publisher.publisher import Publisher
from samelog.replicator.client_errors import PublisherError
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import SessionDirectory
from samelog.wire.bounds import RunEnd
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.admin.registry import SchemaRegistry
    from samelog.publisher.staged_checks import StagedChecks
    from samelog.publisher.typed_rows import RowEncoder

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
RETRY_S = 0.05
ASK_AGAIN = (FaultCode.NOT_READY, FaultCode.NOT_LEADER, FaultCode.TIMEOUT, None)
"""`None`: no node answered; all these requests may be repeated."""
AnswerT = TypeVar("AnswerT")


class StagedWriter:
    """Takes in records for one stage. A context manager: leaving it removes its local files, unless
    they are damaged.

    Args:
        topic: where records go unless an append names another topic.
        stage: the stage's name, of the grammar of session names (at most 100 characters).
        config: the cluster.
        partitions: of the topics.
        directory: for its files until they are held; default: a temporary one.
        compression: as of a publisher.
    """

    def __init__(
        self,
        topic: str,
        *,
        stage: str,
        config: ClientConfig,
        partitions: int = 1,
        directory: str | os.PathLike[str] | None = None,
        compression: str | Compression | None = None,
    ) -> None:
        self._config, self._topic = config, topic
        self._stage = stage
        self._session = f"{stage}-{secrets.token_hex(8)}"
        self._directory = tempfile.mkdtemp(prefix="samelog-stage-", dir=directory)
        self.publisher = Publisher(
            topic,
            session=self._session,
            directory=self._directory,
            config=config,
            partitions=partitions,
            stage=stage,
            compression=compression,
        )
        """Takes the records; of a topic that nodes check, `append_arrow` does."""
        self._checks: StagedChecks | None = None
        self._is_damaged = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.publisher.close()
        except LogFormatError as error:  # `hold` has raised why nothing of it counts
            if not self._is_damaged:
                raise
            log.error("stage %r: a writer is closed despite: %s", self._stage, error)
        if not self._is_damaged:
            shutil.rmtree(self._directory, ignore_errors=True)

    def append_arrow(self, rows: pa.Table, *, partition: int | None = None) -> None:
        """Take a record per row, as `Publisher.append_arrow`. Where nodes check the topic, each is
        checked here first, and says which version of the schema it is of.

        Raises: as that; RowMisfit, which names row, column, type and the value's beginning;
            NotStaged, if nobody says which schema the topic has.
        """
        from samelog.publisher.arrow_rows import columns_of
        from samelog.publisher.staged_checks import StagedChecks

        if self._checks is None:
            self._checks = StagedChecks(self._topic, self._directory, self._config)
        columns = columns_of(rows, "value", None, None, None)
        headers = as_column_of_pairs(columns.headers)
        marked = self._checks.marked(columns.values, headers)
        self.publisher.append_many(
            columns.values,
            keys=columns.keys,
            headers=headers if marked is None else marked,
            timestamps=columns.timestamps,
            partition=partition,
        )

    def row_encoder(self, registry: SchemaRegistry | None = None) -> RowEncoder:
        """What makes values of rows of the topic's schema; with `registry` in Confluent's wire
        format.
        """
        from samelog.admin.known_schemas import KnownSchemas
        from samelog.publisher.typed_rows import RowEncoder

        known = KnownSchemas(OsFileSystem(), self._directory, self._config)
        return RowEncoder(self._topic, known, registry)

    def hold(self, timeout: float = TIMEOUT_S) -> StagedRun | None:
        """What was appended, once a majority holds it durably; None if nothing was.

        Raises NotStaged: not within `timeout` seconds, or refused; nothing of it will be published.
        It comes at once if local files are damaged or missing, and names file, byte and reason.
        """
        deadline = time.monotonic() + timeout
        self.publisher.flush()
        if not self.publisher.positions.appended:
            return None
        try:
            found = self._staged_run()
            self.publisher.wait_held(timeout)
        except (RecordsDamaged, LogFormatError) as error:
            self._is_damaged = True
            raise NotStaged(
                f"stage {self._stage!r}: {error}; stage the records again with another writer. The "
                f"files are kept in {self._directory}: remove them when they are not needed"
            ) from error
        except PublisherError as error:
            raise NotStaged(f"stage {self._stage!r}: {error}") from error
        left = max(0.0, deadline - time.monotonic())
        _ask(self._config, HoldStage(self._stage, (found,)), self._stage, left)
        return found

    def _staged_run(self) -> StagedRun:
        """Return the run of what was appended. Raises LogFormatError."""
        ends = self.publisher.positions.appended
        (run,) = {place.run for place in ends.values()}
        path = os.path.join(self._directory, self._session)
        record = SessionDirectory.open(OsFileSystem(), path).run(run)
        if record is None:
            raise CorruptLog(os.path.join(path, f"run.{run}.json"), 0, "the file is missing")
        places = [RunEnd(*name, place.roll, place.byte) for name, place in sorted(ends.items())]
        return StagedRun(self._session, record.run_id, tuple(places))


def publish_stage(
    config: ClientConfig,
    *,
    stage: str,
    writer: str,
    batch: int,
    runs: Sequence[StagedRun],
    timeout: float = TIMEOUT_S,
) -> bool:
    """Publish what these runs hold, all or nothing; False: the batch was published before, and
    nothing of this came in addition.

    Args:
        writer: who numbers the batches; another one may not begin below the last batch published.
        batch: rises from batch to batch.

    Raises NotStaged: not within `timeout` seconds, and it may yet be; or refused, and it is not.
    """
    body = PublishStage(stage, writer, batch, tuple(runs))
    return _ask(config, body, stage, timeout).is_new


def drop_stage(
    config: ClientConfig, *, stage: str, runs: Sequence[StagedRun], timeout: float = TIMEOUT_S
) -> None:
    """Give up what these runs hold; what is published stays. Raises NotStaged."""
    _ask(config, DropStage(stage, tuple(runs)), stage, timeout)


def _ask(
    config: ClientConfig, request: AdminRequest[AnswerT], stage: str, timeout: float
) -> AnswerT:
    """Ask until there is an answer that stands: these requests may be repeated."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return ask(config, request)
        except AdminError as error:
            if error.code not in ASK_AGAIN or time.monotonic() > deadline:
                raise NotStaged(f"stage {stage!r}: {error}") from error
        time.sleep(RETRY_S)
