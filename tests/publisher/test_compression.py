"""Publishers that compress: the same batches, but for codec, length and CRC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import Publisher
from samelog.config.load import load_client
from samelog.config.tables.client import Compression, PublisherConfig
from samelog.format import _kernels as kernels
from samelog.format.compression import Codec
from samelog.format.dedup import dedup_producer_id
from samelog.format.recompression import packed
from samelog.publisher.options import resolve
from samelog.sequencer.ingest.batch_check import Unpacking, check_batches
from tests.config.test_load import CLIENT
from tests.publisher import reading

CODECS = [each.value for each in Compression if each is not Compression.NONE]
TEXT = b"a line of text that comes again and again, " * 5


def headers(session: Path) -> list[tuple[Any, ...]]:
    """What does not change of each batch: its records, times, producer and numbers."""
    data = reading.raw(session)
    found = kernels.batch_headers(data, 0, len(data))
    return [(header[2], header[3] & ~7, *header[4:9]) for header in found]


def codecs(session: Path) -> set[int]:
    data = reading.raw(session)
    return {header[3] & 7 for header in kernels.batch_headers(data, 0, len(data))}


@pytest.mark.parametrize("codec", CODECS)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_batches_are_those_that_were_not_compressed(
    tmp_path_factory: pytest.TempPathFactory, codec: str, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("twins")
    linger_ms = data.draw(st.sampled_from([0, 60_000]))
    dedup_id = data.draw(st.sampled_from([None, "feed"]))
    given: dict[str, Any] = {"directory": root, "linger_ms": linger_ms, "dedup_id": dedup_id}
    sizes = data.draw(st.lists(st.integers(0, 300), max_size=20))
    with (
        Publisher("t", session="plain", batch_bytes=1000, **given) as plain,
        Publisher("t", session="small", batch_bytes=1000, compression=codec, **given) as small,
    ):
        number = 0
        for count in sizes:
            for each in (plain, small):
                ids: dict[str, Any] = {} if dedup_id is None else {"first_id": number}
                values = [TEXT[: n % 200] for n in range(count % 7)]
                each.append_many(values, timestamps=5, **ids)
                one: dict[str, Any] = {} if dedup_id is None else {"id": number + len(values)}
                each.append(TEXT[:count], key=b"k", headers=[("h", b"v")], timestamp=5, **one)
            number += count % 7 + 1 + count % 3
    if sizes:
        assert headers(root / "small") == headers(root / "plain")
        assert reading.records(root / "small") == reading.records(root / "plain")
        assert kernels.scan(reading.raw(root / "small")).error is None


@pytest.mark.parametrize("codec", CODECS)
def test_many_records_take_less_room(tmp_path: Path, codec: str) -> None:
    with Publisher("t", session="s", directory=tmp_path, compression=codec) as publisher:
        publisher.append_many([TEXT] * 1000, timestamps=5)
    assert codecs(tmp_path / "s") == {Codec[codec.upper()]}
    assert len(reading.raw(tmp_path / "s")) < 1000 * len(TEXT) / 4
    assert reading.values(tmp_path / "s") == [TEXT] * 1000


def test_what_would_not_shrink_stays_as_it_is(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, compression="zstd") as publisher:
        publisher.append(b"short")
    assert codecs(tmp_path / "s") == {Codec.NONE}


def test_nodes_take_every_batch_that_was_compressed() -> None:
    """They unpack up to 7 MiB where batches have dedup ids."""
    producer, size = dedup_producer_id("feed"), 9 << 20
    data = kernels.build_batches(
        [bytes(size)],
        timestamps=5,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_bytes=1 << 20,
        max_record_bytes=10 << 20,
    )
    for codec in Codec:
        made = packed(data, codec)
        batch_bytes = len(made) if len(made) > size else 1 << 20
        looked = check_batches(
            memoryview(made),
            batch_bytes=batch_bytes,
            own=lambda: producer,
            unpacking=Unpacking(),
        )
        assert looked == (1, 1)


def test_the_configuration_says_it_unless_the_program_does(tmp_path: Path) -> None:
    assert PublisherConfig().compression is Compression.NONE
    for name in ("ca.pem", "node.pem", "node.key"):
        (tmp_path / name).touch(mode=0o600)
    path = tmp_path / "client.toml"
    path.write_text(f'{CLIENT}[publisher]\ncompression = "lz4"\n', encoding="utf-8")
    config = load_client(str(path))

    def codec(**said: Any) -> Codec:
        given: Any = {"directory": tmp_path, "config": config, **said}
        return resolve("t", "s", given).codec

    assert codec() is Codec.LZ4
    assert codec(compression="none") is Codec.NONE
    assert codec(compression=Compression.ZSTD) is Codec.ZSTD
    with pytest.raises(ValueError, match="brotli"):
        Publisher("t", session="s", directory=tmp_path, compression="brotli")
