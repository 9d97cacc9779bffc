"""Kafka's Java clients, franz-go, librdkafka and kafka-python decode the table of codec oddities as
nodes judge it: a part of `make interop`. Programs in Java and Go read whole batches by the code of
their consumers. librdkafka reads them from its mock cluster, in a process of its own, because some
of them end it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from samelog.format.batch import HEADER_BYTES
from samelog.format.compression import Codec
from tests.format.oddities import Oddity, oddities
from tests.interop.run import BUILT, CLIENTS, JAVA
from tests.kafka.batches import batch, with_blob

VALUES = [b"value %d, which is long enough" % number for number in range(5)]
PLAIN = batch(*VALUES)
TABLE = list(oddities(PLAIN[HEADER_BYTES:]))

pytestmark = [pytest.mark.campaign, pytest.mark.usefixtures("starts_java")]


def command_of(client: str) -> Sequence[str]:
    """What runs a program's decoder; skips the test where it is not built."""
    directory = BUILT / client
    if not directory.is_dir():
        pytest.skip(f"{client} is not built: `make interop` says why")
    if client in JAVA:
        return ("java", "-cp", f"{directory}/classes:{directory}/lib/*", "interop.Codecs")
    return (str(directory / "interop"), "codecs")


def decoded(client: str, batches: Sequence[bytes]) -> list[list[bytes] | str]:
    """The values of each batch, or why it cannot be read."""
    lines = "".join(each.hex() + "\n" for each in batches)
    ended = subprocess.run(
        command_of(client), input=lines, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    answers = ended.stdout.splitlines()
    return [
        each[1:] if each.startswith("!") else [bytes.fromhex(value) for value in each.split(",")]
        for each in answers
    ]


def batches(table: Sequence[Oddity]) -> list[bytes]:
    """A whole one for each oddity."""
    return [with_blob(PLAIN, odd.codec, odd.blob) for odd in table]


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_node_takes_is_read(client: str) -> None:
    taken = [odd for odd in TABLE if odd.is_taken]
    first, *found = decoded(client, [PLAIN, *batches(taken)])
    assert first == VALUES
    read = {f"{odd.codec.name}: {odd.what}": each for odd, each in zip(taken, found, strict=True)}
    assert read == dict.fromkeys(read, VALUES)


def test_some_reader_does_not_read_what_a_node_refuses() -> None:
    refused = [odd for odd in TABLE if not odd.is_taken]
    by = [decoded(client, batches(refused)) for client in ("java-3.9.2", "go")]
    for number, odd in enumerate(refused):
        is_read = all(found[number] == VALUES for found in by)
        if is_read and by_kafka_python(odd):
            assert by_librdkafka(batches([odd])[0]) != VALUES, f"{odd.codec.name}: {odd.what}"


def by_kafka_python(odd: Oddity) -> bool:
    """Whether kafka-python's decoder gives the records."""
    codec: Any = pytest.importorskip("kafka.codec")
    read = {
        Codec.GZIP: codec.gzip_decode,
        Codec.LZ4: codec.lz4_decode,
        Codec.ZSTD: codec.zstd_decode,
        Codec.SNAPPY: codec.snappy_decode,
    }[odd.codec]
    try:
        return bytes(read(odd.blob)) == PLAIN[HEADER_BYTES:]
    except Exception:  # noqa: BLE001 - each codec has errors of its own
        return False


LIBRDKAFKA = """
import sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kafka.test_producing import produce
from tests.kafka.wire import Wire
quiet = {"log_level": 0}
mock = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "127.0.0.1:1", **quiet})
(broker,) = mock.list_topics(timeout=60).brokers.values()
mock.list_topics("t", timeout=60)
with Wire((broker.host, broker.port)) as wire:
    assert not produce(wire, "t", bytes.fromhex(sys.argv[1])).error_code
boot = {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g"}
consumer = Consumer({**boot, "enable.partition.eof": True, **quiet})
consumer.assign([TopicPartition("t", 0, 0)])
while (message := consumer.poll(60)) is not None and message.error() is None:
    print(message.value().hex(), flush=True)
"""


def by_librdkafka(data: bytes) -> list[bytes]:
    """The values that it reads of a batch, before an error, the end, or the end of its process."""
    ended = subprocess.run(
        (sys.executable, "-c", LIBRDKAFKA, data.hex()), capture_output=True, text=True, check=False
    )
    return [bytes.fromhex(line) for line in ended.stdout.splitlines()]


def test_librdkafka_reads_a_plain_batch() -> None:
    assert by_librdkafka(PLAIN) == VALUES
