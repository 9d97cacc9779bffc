"""What Kafka clients write through a publisher sidecar: its files, retries, full disks."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from samelog.format.batch import read_header
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.sidecar import session_log
from samelog.kafka.sidecar.session_log import Sequences, SidecarLog
from samelog.publisher import session_writer
from samelog.publisher.session_writer import SessionWriter
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import OsFileSystem
from tests.kafka.batches import batch
from tests.publisher import reading
from tests.runtime.peers import until

FS = OsFileSystem()
TOPIC = Topic("0" * 32, "t", {}, 0, [0])
APPENDED = AppendResult(ErrorCode.none)
Body = Callable[[SidecarLog], Coroutine[Any, Any, None]]


def of(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def run(root: Path, body: Body, budget_bytes: int = 1 << 30) -> None:
    async def whole() -> None:
        writer = partial(
            SessionWriter.open,
            FS,
            str(root / "s"),
            session="s",
            budget_bytes=budget_bytes,
            roll_bytes=budget_bytes,
        )
        log = SidecarLog(FS, writer, batch_bytes=1 << 20)
        await body(log)
        await log.close()

    asyncio.run(whole())


def append(log: SidecarLog, data: bytes) -> asyncio.Future[AppendResult]:
    return log.append(TOPIC, 0, memoryview(data), 1)


def refusal(log: SidecarLog, data: bytes) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        append(log, data)
    return refused.value.code


def test_batches_are_written_in_order_without_their_producers(tmp_path: Path) -> None:
    async def body(log: SidecarLog) -> None:
        asked = [append(log, data) for data in (batch(b"a"), of(7, 0, b"b", b"c"), batch(b"d"))]
        assert [await each for each in asked] == [APPENDED] * 3
        assert reading.values(tmp_path / "s") == [b"a", b"b", b"c", b"d"]

    run(tmp_path, body)
    data = reading.raw(tmp_path / "s")
    assert read_header(data).producer_id == -1
    second = read_header(data, len(batch(b"a")))
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (-1, -1, -1)


def test_a_retry_is_answered_and_not_written_again(tmp_path: Path) -> None:
    async def body(log: SidecarLog) -> None:
        for data in (of(7, 0, b"a"), of(7, 0, b"a"), of(7, 1, b"b"), of(8, 0, b"c")):
            assert await append(log, data) == APPENDED
        assert refusal(log, of(7, 5, b"x")) is ErrorCode.out_of_order_sequence_number
        assert await append(log, of(7, 0, b"d", epoch=1)) == APPENDED
        assert refusal(log, of(7, 2, b"x")) is ErrorCode.invalid_producer_epoch

    run(tmp_path, body)
    assert reading.values(tmp_path / "s") == [b"a", b"b", b"c", b"d"]


def test_a_full_budget_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    async def body(log: SidecarLog) -> None:
        assert await append(log, batch(bytes(3000))) == APPENDED
        assert refusal(log, of(7, 0, bytes(3000))) is ErrorCode.kafka_storage_error
        assert await append(log, of(7, 0, b"small")) == APPENDED

    run(tmp_path, body, budget_bytes=5000)
    assert reading.values(tmp_path / "s") == [bytes(3000), b"small"]


@pytest.mark.parametrize(("kind", "code"), [(DiskFault, errno.EIO), (NoSpace, errno.ENOSPC)])
def test_after_a_failed_sync_nothing_more_is_taken(
    kind: type[DiskFault], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise kind("log.0.0", "sync", code)

    async def body(log: SidecarLog) -> None:
        monkeypatch.setattr(session_writer.Unsynced, "sync", fail)
        asked = [append(log, batch(b"a")), append(log, batch(b"b"))]
        assert {(await each).error for each in asked} == {ErrorCode.kafka_storage_error}
        assert refusal(log, batch(b"c")) is ErrorCode.kafka_storage_error
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert "the session of Kafka clients" not in names, "nobody opens it again"

    run(tmp_path, body)


def test_what_lies_where_nobody_finds_it_is_not_answered_and_taken_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is unmounted, or replaced, while the file is open."""
    monkeypatch.setattr(session_log, "REOPEN_S", 0.01)

    async def body(log: SidecarLog) -> None:
        assert await append(log, of(7, 0, b"a")) == APPENDED
        written = append(log, of(7, 1, b"b"))
        (tmp_path / "s").rename(tmp_path / "away")
        assert (await written).error is ErrorCode.kafka_storage_error
        assert "while it was in use" in log.fault
        assert refusal(log, of(7, 1, b"b")) is ErrorCode.kafka_storage_error
        await until(lambda: log.fault == "")
        assert await append(log, of(7, 1, b"b")) == APPENDED

    run(tmp_path, body)
    assert reading.values(tmp_path / "away") == [b"a", b"b"]
    assert reading.values(tmp_path / "s") == [b"b"], "a retry is written again"


def test_what_comes_while_the_directory_is_gone_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "REOPEN_S", 0.01)

    async def body(log: SidecarLog) -> None:
        assert await append(log, batch(b"-")) == APPENDED
        (tmp_path / "s").rename(tmp_path / "away")
        assert refusal(log, batch(b"a")) is ErrorCode.kafka_storage_error
        assert reading.values(tmp_path / "away") == [b"-"]
        await until(lambda: log.fault == "")
        assert await append(log, batch(b"b")) == APPENDED

    run(tmp_path, body)
    assert reading.values(tmp_path / "s") == [b"b"]


def test_a_disk_that_is_full_at_the_start_keeps_no_sidecar_from_shipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "REOPEN_S", 0.01)
    full = [True]

    def open_writer() -> SessionWriter:
        if full:
            raise NoSpace("session.json", "write", errno.ENOSPC)
        path = str(tmp_path / "s")
        return SessionWriter.open(FS, path, session="s", budget_bytes=9000, roll_bytes=9000)

    async def main() -> None:
        log = SidecarLog(FS, open_writer, batch_bytes=1 << 20)
        assert "No space left" in log.fault
        assert refusal(log, batch(b"a")) is ErrorCode.kafka_storage_error
        full.clear()
        await until(lambda: log.fault == "")
        assert await append(log, batch(b"a")) == APPENDED
        await log.close()

    asyncio.run(main())


def test_producers_that_wrote_least_lately_are_forgotten() -> None:
    known = Sequences(limit=2)
    for producer in (1, 2, 1, 3):
        header = read_header(of(producer, 0, b"x"))
        if known.is_new(header, "t", 0):
            known.written(header, "t", 0)
    assert not known.is_new(read_header(of(3, 0, b"x")), "t", 0)
    assert not known.is_new(read_header(of(2, 0, b"x")), "t", 0)
    assert known.is_new(read_header(of(1, 0, b"x")), "t", 0)
