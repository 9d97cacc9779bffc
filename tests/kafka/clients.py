"""One face for several Kafka clients, so that a test of a feature is written once.

Each does the least that the feature takes, and raises whatever its library raises.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pytest

from tests.patience import PATIENCE_S

POLL_S = 0.5
POLLS = int(PATIENCE_S / POLL_S)
TOKEN_S = 600
"""How long librdkafka is told that a token counts."""


class Rec(NamedTuple):
    """One record."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a cluster is, and what lets one in."""

    bootstrap: str
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    mechanism: str | None = None
    user: str = "ann"
    password: str = "right"
    token: str | None = None
    """Instead of name and password, for OAUTHBEARER."""

    @property
    def name(self) -> str | None:
        """Of who comes with a name and a password."""
        return None if self.mechanism is None or self.token is not None else self.user

    @property
    def protocol(self) -> str:
        """Under Kafka's name."""
        if self.mechanism is not None:
            return "SASL_SSL"
        return "PLAINTEXT" if self.authority is None else "SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How records are produced."""

    acks: str = "all"
    codec: str = "none"
    idempotent: bool = False


class KafkaClient(Protocol):
    """What a client is asked to do, on partition 0 of a topic."""

    def write(self, access: Access, topic: str, records: Iterable[Rec], how: Writing) -> None:
        """Produce; every record is acknowledged (unless acks is 0) when this returns."""

    def read(self, access: Access, topic: str, count: int, *, start: int = 0) -> list[Rec]:
        """So many records from an offset on."""

    def place(self, access: Access, topic: str, timestamp: int) -> int:
        """The offset of the first record that is not older."""


class CommittingClient(KafkaClient, Protocol):
    """One that commits where it is told to."""

    def commit(self, access: Access, topic: str, offset: int, note: str) -> tuple[int, str]:
        """Commit an offset for a group of the topic's name: what is committed then."""


def found_enough(found: list[Any], count: int) -> list[Any]:
    """What was read, if that is enough."""
    assert len(found) >= count, f"{len(found)} of {count} records"
    return found[:count]


class Confluent:
    """librdkafka."""

    def options(self, access: Access, **more: Any) -> dict[str, Any]:
        """Its configuration."""
        given: dict[str, Any] = {
            "bootstrap.servers": access.bootstrap,
            "security.protocol": access.protocol,
            "ssl.ca.location": access.authority,
            "ssl.certificate.location": access.certificate,
            "ssl.key.location": access.key,
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.name,
            "sasl.password": access.name and access.password,
            "log_level": 0,
        }
        if access.token is not None:
            given["oauth_cb"] = lambda _: (access.token, time.time() + TOKEN_S)
        given |= {name.replace("_", "."): value for name, value in more.items()}
        return {name: value for name, value in given.items() if value is not None}

    def write(self, access: Access, topic: str, records: Iterable[Rec], how: Writing) -> None:
        """Produce."""
        from confluent_kafka import Producer

        errors: list[Any] = []
        producer = Producer(
            self.options(
                access,
                acks=how.acks,
                compression_codec=how.codec,
                enable_idempotence=how.idempotent,
            )
        )
        for each in records:
            producer.produce(
                topic,
                each.value,
                each.key,
                partition=0,
                timestamp=each.timestamp or 0,
                headers=list(each.headers),
                on_delivery=lambda error, _: errors.append(error),
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert not any(errors), errors

    def _reader(self, access: Access, topic: str, start: int) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer(self.options(access, group_id=topic, enable_auto_commit=False))
        reader.assign([TopicPartition(topic, 0, 0)])
        if start:
            assert reader.consume(1, PATIENCE_S)[0].offset() == 0
            reader.seek(TopicPartition(topic, 0, start))
        return reader

    def read(self, access: Access, topic: str, count: int, *, start: int = 0) -> list[Rec]:
        """Consume; what is not the beginning is sought."""
        reader = self._reader(access, topic, start)
        found: list[Any] = []
        for _ in range(POLLS):
            found += reader.consume(count - len(found), POLL_S)
            if len(found) >= count:
                break
        reader.close()
        return [
            Rec(m.value(), m.key(), m.timestamp()[1], tuple(m.headers() or ()))
            for m in found_enough(found, count)
        ]

    def place(self, access: Access, topic: str, timestamp: int) -> int:
        """By time."""
        from confluent_kafka import TopicPartition

        reader = self._reader(access, topic, 0)
        (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], PATIENCE_S)
        reader.close()
        return int(found.offset)

    def commit(self, access: Access, topic: str, offset: int, note: str) -> tuple[int, str]:
        """Commit and look."""
        from confluent_kafka import TopicPartition

        reader = self._reader(access, topic, 0)
        wanted = TopicPartition(topic, 0, offset, note)
        reader.commit(offsets=[wanted], asynchronous=False)
        (found,) = reader.committed([TopicPartition(topic, 0)], PATIENCE_S)
        reader.close()
        return found.offset, found.metadata


def python_options(access: Access) -> dict[str, Any]:
    """What kafka-python and aiokafka call alike."""
    given = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.name,
        "sasl_plain_password": access.name and access.password,
    }
    return {name: value for name, value in given.items() if value is not None}


def python_writing(how: Writing) -> dict[str, Any]:
    """What they call alike of a producer's."""
    acks: Any = how.acks if how.acks == "all" else int(how.acks)
    codec = None if how.codec == "none" else how.codec
    return {"acks": acks, "compression_type": codec, "enable_idempotence": how.idempotent}


class AioKafka:
    """aiokafka."""

    def _options(self, access: Access) -> dict[str, Any]:
        options = python_options(access)
        if access.authority is not None:
            context = ssl.create_default_context(cafile=access.authority)
            if access.certificate is not None:
                context.load_cert_chain(access.certificate, access.key)
            options["ssl_context"] = context
        if access.token is not None:
            options["sasl_oauth_token_provider"] = self._provider(access.token)
        return options

    def _provider(self, token: str) -> Any:
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return token

        return Provider()

    def write(self, access: Access, topic: str, records: Iterable[Rec], how: Writing) -> None:
        """Produce."""
        asyncio.run(self._write(access, topic, records, how))

    async def _write(
        self, access: Access, topic: str, records: Iterable[Rec], how: Writing
    ) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(**self._options(access), **python_writing(how)) as producer:
            sent = [
                await producer.send(
                    topic,
                    each.value,
                    each.key,
                    partition=0,
                    timestamp_ms=each.timestamp,
                    headers=list(each.headers),
                )
                for each in records
            ]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)

    def read(self, access: Access, topic: str, count: int, *, start: int = 0) -> list[Rec]:
        """Consume."""
        return asyncio.run(self._read(access, topic, count, start))

    async def _read(self, access: Access, topic: str, count: int, start: int) -> list[Rec]:
        found: list[Any] = []
        async with self._reader(access) as reader:
            partition = self._assign(reader, topic)
            reader.seek(partition, start)
            for _ in range(POLLS):
                batches = await reader.getmany(partition, timeout_ms=int(POLL_S * 1000))
                found += batches.get(partition, ())
                if len(found) >= count:
                    break
        return [
            Rec(m.value, m.key, m.timestamp, tuple(m.headers)) for m in found_enough(found, count)
        ]

    def _reader(self, access: Access, **more: Any) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(**{"group_id": None, **self._options(access), **more})

    def _assign(self, reader: Any, topic: str) -> Any:
        from aiokafka import TopicPartition

        partition = TopicPartition(topic, 0)
        reader.assign([partition])
        return partition

    def place(self, access: Access, topic: str, timestamp: int) -> int:
        """By time."""

        async def look() -> int:
            async with self._reader(access) as reader:
                partition = self._assign(reader, topic)
                found = await reader.offsets_for_times({partition: timestamp})
                return int(found[partition].offset)

        return asyncio.run(look())

    def commit(self, access: Access, topic: str, offset: int, note: str) -> tuple[int, str]:
        """Commit; it does not tell the note, so somebody else looks."""

        async def commit() -> None:
            async with self._reader(access, group_id=topic, enable_auto_commit=False) as reader:
                await reader.commit({self._assign(reader, topic): (offset, note)})

        asyncio.run(commit())
        return KafkaPython().committed(access, topic)


class KafkaPython:
    """kafka-python."""

    def _options(self, access: Access) -> dict[str, Any]:
        given = {
            **python_options(access),
            "ssl_cafile": access.authority,
            "ssl_certfile": access.certificate,
            "ssl_keyfile": access.key,
            "sasl_oauth_token_provider": access.token and self._provider(access.token),
        }
        return {name: value for name, value in given.items() if value is not None}

    def _provider(self, token: str) -> Any:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return token

        return Provider()

    def write(self, access: Access, topic: str, records: Iterable[Rec], how: Writing) -> None:
        """Produce."""
        from kafka import KafkaProducer

        producer = KafkaProducer(**self._options(access), **python_writing(how))
        sent = [
            producer.send(
                topic,
                each.value,
                each.key,
                headers=list(each.headers),
                partition=0,
                timestamp_ms=each.timestamp,
            )
            for each in records
        ]
        for future in sent:
            future.get(PATIENCE_S)
        producer.close()

    def _reader(self, access: Access, topic: str) -> tuple[Any, Any]:
        from kafka import KafkaConsumer, TopicPartition

        reader = KafkaConsumer(**self._options(access), group_id=topic, enable_auto_commit=False)
        partition = TopicPartition(topic, 0)
        reader.assign([partition])
        return reader, partition

    def read(self, access: Access, topic: str, count: int, *, start: int = 0) -> list[Rec]:
        """Consume."""
        reader, partition = self._reader(access, topic)
        reader.seek(partition, start)
        found: list[Any] = []
        for _ in range(POLLS):
            found += reader.poll(int(POLL_S * 1000)).get(partition, ())
            if len(found) >= count:
                break
        reader.close()
        return [
            Rec(m.value, m.key, m.timestamp, tuple(m.headers)) for m in found_enough(found, count)
        ]

    def place(self, access: Access, topic: str, timestamp: int) -> int:
        """By time."""
        reader, partition = self._reader(access, topic)
        found = reader.offsets_for_times({partition: timestamp})[partition].offset
        reader.close()
        return int(found)

    def commit(self, access: Access, topic: str, offset: int, note: str) -> tuple[int, str]:
        """Commit and look."""
        from kafka.structs import OffsetAndMetadata

        reader, partition = self._reader(access, topic)
        reader.commit({partition: OffsetAndMetadata(offset, note, -1)})
        reader.close()
        return self.committed(access, topic)

    def committed(self, access: Access, topic: str) -> tuple[int, str]:
        """What is."""
        reader, partition = self._reader(access, topic)
        found = reader.committed(partition, metadata=True)
        reader.close()
        return found.offset, found.metadata


class Kcat:
    """kcat, which is given librdkafka's configuration."""

    def _run(self, access: Access, topic: str, *arguments: str, text: bytes = b"") -> bytes:
        options = Confluent().options(access)
        settings = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
        command = ["kcat", *settings, "-t", topic, "-p", "0", *arguments]
        done = subprocess.run(
            command, check=False, input=text, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, access: Access, topic: str, records: Iterable[Rec], how: Writing) -> None:
        """Produce, a line a record."""
        idempotence = f"enable.idempotence={str(how.idempotent).lower()}"
        options = ("-P", "-z", how.codec, "-X", f"acks={how.acks}", "-X", idempotence)
        text = b"".join(each.value + b"\n" for each in records)
        self._run(access, topic, *options, text=text)

    def read(self, access: Access, topic: str, count: int, *, start: int = 0) -> list[Rec]:
        """Consume."""
        lines = self._run(access, topic, "-C", "-o", str(start), "-c", str(count)).splitlines()
        return [Rec(line) for line in found_enough(lines, count)]

    def place(self, access: Access, topic: str, timestamp: int) -> int:
        """Where it begins to read at a time."""
        told = self._run(access, topic, "-C", "-o", f"s@{timestamp}", "-c", "1", "-f", "%o")
        return int(told)


PYTHON: dict[str, CommittingClient] = {
    "confluent-kafka": Confluent(),
    "aiokafka": AioKafka(),
    "kafka-python": KafkaPython(),
}
CLIENTS: dict[str, KafkaClient] = {**PYTHON, "kcat": Kcat()}


def client_named(name: str) -> KafkaClient:
    """A client; skips the test that asks for one that is not installed."""
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not here: apt-get install kcat")
    return CLIENTS[name]
