"""TLS, certificates, names and passwords, rights: with real clients."""

from __future__ import annotations

import itertools
import os
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.kafka.server.connection import STRANGERS_REQUESTS
from tests.e2e.harness import wait_for
from tests.http import asking
from tests.kafka.batches import batch
from tests.kafka.clients import (
    CLIENTS,
    PYTHON,
    Access,
    Confluent,
    Rec,
    Writing,
    client_named,
)
from tests.kafka.features import cells, each
from tests.kafka.secure import HOST, SLOW_BYTES, Secure
from tests.kafka.token_issuer import Issuer
from tests.kafka.wire import FETCH, Wire, fetch_tree, request, response
from tests.patience import PATIENCE_S

GROUP_DENIED = 30
SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 17, 36, 3
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[Secure]:
    """One node, with listeners and users."""
    path = tmp_path_factory.mktemp("secure")
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.prepare()
        secure = Secure(cluster, path)
        cluster.start()
        plain = AdminClient({"bootstrap.servers": cluster.client_config().kafka_bootstrap})
        topics = [NewTopic("open", 1), NewTopic("closed", 1)]
        for made in plain.create_topics(topics).values():
            made.result(PATIENCE_S)
        yield secure


REFUSED_MS = 6000
"""Of a producer that gets no answer: librdkafka tries again until then."""


def send(
    options: dict[str, Any],
    topic: str = "open",
    *,
    timeout_ms: int = int(PATIENCE_S * 1000),
    **more: Any,
) -> Any:
    """Produce one record: the error it ended with."""
    producer = Producer(options | {"message.timeout.ms": timeout_ms} | more)
    errors: list[Any] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    return errors[0]


def topics_seen(options: dict[str, Any], *, timeout_s: float = 10) -> set[str]:
    return set(AdminClient(options).list_topics(timeout=timeout_s).topics)


def refuse(options: dict[str, Any]) -> None:
    """Whoever comes like this gets no answer."""
    with pytest.raises(KafkaException):
        topics_seen(options, timeout_s=1)


def lets_in(options: dict[str, Any]) -> bool:
    try:
        return "open" in topics_seen(options, timeout_s=2)
    except KafkaException:
        return False


def test_tls_without_a_certificate_is_anonymous(secure: Secure) -> None:
    assert send(secure.options("tls")) is None
    assert "closed" in topics_seen(secure.options("tls"))


def test_a_foreign_authority_is_not_trusted_by_the_client(secure: Secure) -> None:
    options = secure.options("tls")
    del options["ssl.ca.location"]
    refuse(options)


def test_plaintext_on_a_tls_port_is_refused(secure: Secure) -> None:
    with Wire((HOST, secure.ports["tls"][0])) as wire:
        wire.send(request(18, 0, {}))
        assert wire.is_closed()


def test_mutual_tls_takes_the_identity_from_the_certificate(secure: Secure) -> None:
    assert send(secure.options("mtls", **secure.certificate("client-local"))) is None
    nobody = secure.options("mtls", **secure.certificate("subscriber-nobody"))
    assert topics_seen(nobody) == set()
    assert send(nobody, timeout_ms=REFUSED_MS) is not None


def test_mutual_tls_without_a_certificate_is_refused(secure: Secure) -> None:
    refuse(secure.options("mtls"))


def test_a_certificate_of_another_key_changes_nothing(secure: Secure) -> None:
    cert, log = secure.mtls_files / "cert", Path(secure.world.cluster.nodes[0].log_file)
    good = cert.read_bytes()
    cert.write_bytes(Path(secure.pki, "client-local.pem").read_bytes())
    told = "Kafka listeners keep their old files"
    wait_for(lambda: told in log.read_text(), "it is told")
    options = secure.options("mtls", **secure.certificate("client-local"))
    assert "open" in topics_seen(options, timeout_s=PATIENCE_S)
    text = asking.get(secure.world.cluster.nodes[0].http, "/metrics")
    assert 'samelog_tls_files_unusable{certificate="kafka/mtls"} 1.0' in text
    assert 'samelog_tls_files_unusable{certificate="own"} 0.0' in text
    cert.write_bytes(good)
    assert "open" in topics_seen(options, timeout_s=PATIENCE_S)


def test_an_authority_that_was_replaced_counts_no_more(secure: Secure, tmp_path: Path) -> None:
    own, pki = secure.mtls_files, str(tmp_path / "pki")
    authority = create_authority(pki, "other")
    node = issue(pki, CertificateRole.NODE, "node", hosts=[HOST])
    issue(pki, CertificateRole.CLIENT, "local")
    before = secure.options("mtls", **secure.certificate("client-local"))
    after = before | {
        "ssl.ca.location": authority.cert,
        "ssl.certificate.location": f"{pki}/client-local.pem",
        "ssl.key.location": f"{pki}/client-local.key",
    }
    old_certificate = before | {"ssl.ca.location": authority.cert}

    assert (lets_in(before), lets_in(after)) == (True, False)
    kept = {name: (own / name).read_bytes() for name in ("ca", "cert", "key")}
    for name, file in (("ca", authority.cert), ("cert", node.cert), ("key", node.key)):
        (own / name).write_bytes(Path(file).read_bytes())
    wait_for(lambda: lets_in(after), "the new authority")
    assert (lets_in(before), lets_in(old_certificate)) == (False, False)
    for name, data in kept.items():
        (own / name).write_bytes(data)
    wait_for(lambda: lets_in(before), "the old one again")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_with_librdkafka(secure: Secure, mechanism: str) -> None:
    def login(name: str, password: str) -> dict[str, Any]:
        return secure.options(
            "sasl", sasl_mechanism=mechanism, sasl_username=name, sasl_password=password
        )

    assert send(login("ann", "right")) is None
    assert topics_seen(login("ann", "right")) == {"open"}
    for name, password in (("ann", "wrong"), ("eve", "right")):
        refuse(login(name, password))


def round_trip(secure: Secure, client: str, access: Access) -> None:
    """What a client writes it reads."""
    topic = f"open-{next(NUMBERS)}"
    plain = AdminClient({"bootstrap.servers": secure.world.cluster.client_config().kafka_bootstrap})
    plain.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    client_named(client).write(access, topic, [Rec(b"value")], Writing())
    assert [each.value for each in client_named(client).read(access, topic, 1)] == [b"value"]


@pytest.mark.parametrize("client", each(CLIENTS, "TLS"))
def test_tls_with_every_client(secure: Secure, client: str) -> None:
    round_trip(secure, client, secure.access("tls"))


@pytest.mark.parametrize("client", each(CLIENTS, "mutual TLS"))
def test_mutual_tls_with_every_client(secure: Secure, client: str) -> None:
    round_trip(secure, client, secure.access("mtls"))


@pytest.mark.parametrize(("client", "mechanism"), cells("SASL ", *MECHANISMS))
def test_sasl_with_every_client(secure: Secure, client: str, mechanism: str) -> None:
    round_trip(secure, client, secure.access("sasl", mechanism=mechanism))


@pytest.mark.parametrize("client", PYTHON)
def test_tokens_with_every_client(secure: Secure, client: str) -> None:
    token = secure.issuer.token()
    round_trip(secure, client, secure.access("sasl", mechanism="OAUTHBEARER", token=token))


def test_tokens_decide_who_is_let_in(secure: Secure) -> None:
    def who(token: str) -> dict[str, Any]:
        access = secure.access("sasl", mechanism="OAUTHBEARER", token=token)
        return Confluent().options(access)

    refuse(who(Issuer().token()))
    refuse(who(secure.issuer.token(aud="another")))
    assert "open" in topics_seen(who(secure.issuer.token(sub="reader")))
    assert send(who(secure.issuer.token(sub="reader")), timeout_ms=REFUSED_MS) is not None
    new = Issuer("new-")
    secure.jwks.write_bytes(new.key_set())
    wait_for(lambda: lets_in(who(new.token())), "the new keys")
    refuse(who(secure.issuer.token()))
    secure.jwks.write_bytes(secure.issuer.key_set())
    wait_for(lambda: lets_in(who(secure.issuer.token())), "the old ones again")


def test_rights_decide(secure: Secure) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_password": "right"}
    reader = secure.options("sasl", sasl_username="reader", **login)
    ann = secure.options("sasl", sasl_username="ann", **login)
    assert send(ann, "closed").code() == 29
    assert send(reader, "open").code() == 29
    assert send(ann, "open") is None
    consumer = Consumer(reader | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("open", 0, 0)])
    found: list[Any] = []
    wait_for(lambda: bool(found.extend(consumer.consume(1, 0.5)) or found), "a record")  # type: ignore[func-returns-value]
    consumer.close()
    assert found[0].error() is None
    admin = AdminClient(ann)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("mine", 1)])["mine"].result(PATIENCE_S)
    assert refused.value.args[0].code() == 29


def wait_until(look: Callable[[], Any]) -> Any:
    """The first thing that is there."""
    found: list[Any] = []

    def is_there() -> bool:
        found.append(look())
        return found[-1] is not None

    wait_for(is_there, "a message")
    return found[-1]


def test_groups_that_no_grant_names_are_denied(secure: Secure) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_password": "right", "sasl_username": "member"}
    options = secure.options("sasl", **login)
    assert send(secure.options("tls")) is None
    mine = Consumer(options | {"group.id": "mine-1", "auto.offset.reset": "earliest"})
    mine.subscribe(["open"])
    assert wait_until(lambda: mine.poll(0.5)).error() is None
    with Consumer(options | {"group.id": "yours"}) as yours:
        yours.subscribe(["open"])
        told = wait_until(lambda: yours.poll(0.5))
        assert told.error().code() == GROUP_DENIED
    anybody = AdminClient(secure.options("tls"))
    with Consumer(secure.options("tls", group_id="theirs")) as theirs:
        theirs.commit(offsets=[TopicPartition("open", 0, 1)], asynchronous=False)
    for admin, expected in ((AdminClient(options), {"mine-1"}), (anybody, {"mine-1", "theirs"})):
        listed = admin.list_consumer_groups().result(PATIENCE_S).valid
        assert {each.group_id for each in listed} >= expected
        assert ("theirs" in {each.group_id for each in listed}) == ("theirs" in expected)
    with logged_in(secure, "member") as wire:
        described = wire.ask(15, 0, {"groups": ["theirs", "mine-1"]}).groups
        assert [group.error_code for group in described] == [GROUP_DENIED, 0]
    mine.close()


class SecureWire(Wire):
    """Requests by hand, over TLS."""

    def __init__(self, secure: Secure) -> None:
        super().__init__((HOST, secure.ports["sasl"][0]))
        context = ssl.create_default_context(cafile=secure.authority)
        self.socket = context.wrap_socket(self.socket, server_hostname=HOST)


def test_nothing_is_answered_before_authentication(secure: Secure) -> None:
    with SecureWire(secure) as wire:
        assert wire.ask(18, 0, {}).error_code == 0
        wire.send(request(METADATA, 1, {"topics": None}))
        assert wire.is_closed()


def test_an_exchange_that_fails_is_answered_and_closed(secure: Secure) -> None:
    with SecureWire(secure) as wire:
        early = wire.ask(SASL_AUTHENTICATE, 1, {"auth_bytes": b"x"})
        assert early.error_code == 34
        assert wire.ask(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}).error_code == 35
        assert wire.ask(SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"}).error_code == 33
        assert wire.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
        wire.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0ann\0wrong"}))
        answer = response(SASL_AUTHENTICATE, 2, wire.receive())
        assert answer.error_code == 58
        assert "invalid credentials" in answer.error_message
        assert wire.is_closed()


def test_a_changed_password_counts_for_new_connections(secure: Secure) -> None:
    options = secure.options("sasl", sasl_mechanism="PLAIN", sasl_username="ann")
    secure.password.write_text("other\n")

    wait_for(lambda: lets_in(options | {"sasl.password": "other"}), "the new password")
    secure.password.write_text("right\n")
    wait_for(lambda: lets_in(options | {"sasl.password": "right"}), "the old one again")


# --- bounds -------------------------------------------------------------------------------------


def logged_in(secure: Secure, name: str) -> SecureWire:
    wire = SecureWire(secure)
    assert wire.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
    token = f"\0{name}\0right".encode()
    assert wire.ask(SASL_AUTHENTICATE, 2, {"auth_bytes": token}).error_code == 0
    return wire


def test_requests_are_short_before_authentication_and_long_after_it(secure: Secure) -> None:
    long = struct.pack(">i", 600 << 10) + request(18, 0, {})[4:]
    with SecureWire(secure) as wire:
        wire.send(long)
        assert wire.is_closed()
    with logged_in(secure, "ann") as wire:
        wire.send(long + bytes((600 << 10) - len(long) + 4))
        assert response(18, 0, wire.receive()).error_code == 0


def test_who_never_authenticates_is_closed_after_so_many_requests(secure: Secure) -> None:
    with SecureWire(secure) as wire:
        wire.send(request(18, 0, {}) * 200)
        for _ in range(STRANGERS_REQUESTS):
            assert wire.receive()
        assert wire.is_closed()


def pause_after(wire: Wire, key: int, version: int, tree: dict[str, Any]) -> float:
    """Seconds for which a request was too much; and that the next waits for so long."""
    answer = wire.ask(key, version, tree)
    asked_at = time.monotonic()
    assert wire.ask(18, 0, {}).error_code == 0
    pause_s: float = answer.throttle_time_ms / 1000
    assert time.monotonic() - asked_at >= 0.9 * pause_s
    return pause_s


def produce_tree(size: int) -> dict[str, Any]:
    part = {"index": 0, "records": batch(os.urandom(size))}
    topics = [{"name": "open", "partition_data": [part]}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 9000, "topic_data": topics}


def test_who_writes_more_than_its_quota_waits(secure: Secure) -> None:
    with logged_in(secure, "slow-writer") as wire:
        assert 0.5 < pause_after(wire, 0, 9, produce_tree(2 * SLOW_BYTES)) <= 1.1
    throttled: list[Any] = []
    login = {"sasl_mechanism": "PLAIN", "sasl_password": "right", "sasl_username": "slow-writer"}
    assert send(secure.options("sasl", **login), throttle_cb=throttled.append) is None
    with logged_in(secure, "ann") as wire:
        assert pause_after(wire, 0, 9, produce_tree(2 * SLOW_BYTES)) == 0


def test_who_reads_more_than_its_quota_waits(secure: Secure) -> None:
    with logged_in(secure, "ann") as wire:
        assert pause_after(wire, 0, 9, produce_tree(3 * SLOW_BYTES // 2)) == 0
        tree = offsets_tree(-2)
        start = wire.ask(2, 1, tree).topics[0].partitions[0].offset
    tree = fetch_tree("open", start, max_bytes=8 << 20, partition_max_bytes=8 << 20)
    with logged_in(secure, "slow-reader") as wire:
        assert pause_after(wire, FETCH, 12, tree) > 0


def offsets_tree(timestamp: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp}
    return {"replica_id": -1, "topics": [{"name": "open", "partitions": [partition]}]}


def test_who_asks_more_often_than_its_quota_waits(secure: Secure) -> None:
    with logged_in(secure, "slow-asker") as wire:
        wire.send(request(3, 4, {"topics": []}) * 12)  # at once, however slow this machine is
        answers = [response(3, 4, wire.receive()) for _ in range(12)]
        assert max(answer.throttle_time_ms / 1000 for answer in answers) > 0
