"""ACLs, users and quotas over the Kafka protocol, with real clients on nodes with users."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.sequencer.state.tables.access import SESSION_MS
from tests.e2e.harness import wait_for
from tests.kafka.secure import Secure
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

NAMES = (f"n{number}" for number in itertools.count())
DENIED = {29, 30, 31}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[Secure]:
    """Three nodes: what is set through one holds on all."""
    path = tmp_path_factory.mktemp("access")
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=3)) as cluster:
        cluster.prepare()
        secure = Secure(cluster, path)
        cluster.start()
        yield secure


@pytest.fixture
def admin(secure: Secure) -> AdminClient:
    """Who may do everything."""
    bootstrap = secure.world.cluster.client_config().kafka_bootstrap
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def wire(secure: Secure) -> Iterator[Wire]:
    """The same, by hand."""
    node = secure.world.cluster.nodes[1]
    assert node.kafka is not None
    with Wire(node.kafka) as found:
        yield found


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = next(NAMES)
    done(admin.create_topics([NewTopic(name, 1)]))
    return name


@pytest.fixture
def user(admin: AdminClient) -> str:
    """A user that no file knows."""
    name = next(NAMES)
    done(admin.alter_user_scram_credentials([upsertion(name, "right")]))
    return name


def done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def code(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as refused:
        done(futures)
    return int(refused.value.args[0].code())


def upsertion(name: str, password: str, mechanism: Any = ScramMechanism.SCRAM_SHA_256) -> Any:
    info = ScramCredentialInfo(mechanism, 4096)
    return UserScramCredentialUpsertion(name, info, password.encode())


def login(secure: Secure, name: str, word: str = "right", mechanism: str = "SCRAM-SHA-256") -> Any:
    return secure.options("sasl", sasl_mechanism=mechanism, sasl_username=name, sasl_password=word)


def gets_in(options: dict[str, Any]) -> bool:
    try:
        return bool(AdminClient(options).list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def described_users(admin: AdminClient, name: str) -> dict[str, Any]:
    futures = admin.describe_user_scram_credentials([name])
    assert isinstance(futures, dict)
    return futures


def binding(
    user: str, operation: str, kind: str, name: str, *, prefixed: bool = False, deny: bool = False
) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    wanted = ResourceType[kind], name, pattern, f"User:{user}", "*", AclOperation[operation]
    return AclBinding(*wanted, permission)


def every(user: str) -> AclBindingFilter:
    nothing: Any = None
    return AclBindingFilter(
        ResourceType.ANY,
        nothing,
        ResourcePatternType.ANY,
        f"User:{user}",
        nothing,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def produces(options: dict[str, Any], topic: str) -> bool:
    producer = Producer(options | {"message.timeout.ms": 5_000})
    errors: list[Any] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors[0] is None or errors[0].code() in {*DENIED, -192}
    return errors[0] is None


# --- users --------------------------------------------------------------------------------------


def test_users_come_and_go(secure: Secure, admin: AdminClient) -> None:
    name = next(NAMES)
    assert not gets_in(login(secure, name))
    both = [upsertion(name, "right"), upsertion(name, "other", ScramMechanism.SCRAM_SHA_512)]
    done(admin.alter_user_scram_credentials(both))
    wait_for(lambda: gets_in(login(secure, name)), "it is let in")
    wait_for(lambda: gets_in(login(secure, name, "other", "SCRAM-SHA-512")), "this way, too")
    assert not gets_in(login(secure, name, "wrong"))
    assert not gets_in(login(secure, name, "right", "SCRAM-SHA-512"))
    assert not gets_in(login(secure, name, "right", "PLAIN"))
    told = described_users(admin, name)[name].result(PATIENCE_S)
    found = {(x.mechanism.name, x.iterations) for x in told.scram_credential_infos}
    assert found == {("SCRAM_SHA_256", 4096), ("SCRAM_SHA_512", 4096)}
    gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
    done(admin.alter_user_scram_credentials([gone]))
    wait_for(lambda: not gets_in(login(secure, name)), "it is not let in any more")
    assert gets_in(login(secure, name, "other", "SCRAM-SHA-512"))
    assert code(admin.alter_user_scram_credentials([gone])) == 91
    assert code(described_users(admin, "nobody")) == 91


def test_a_user_that_is_created_again_has_the_grants_of_its_name_only(
    secure: Secure, admin: AdminClient, topic: str, user: str
) -> None:
    """Connections that are open stay; each new one needs the new password."""
    done(admin.create_acls([binding(user, "WRITE", "TOPIC", topic)]))
    producer = Producer(login(secure, user) | {"message.timeout.ms": 30_000})
    errors: list[Any] = []

    def send() -> None:
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0

    wait_for(lambda: gets_in(login(secure, user)), "its login works")
    send()
    gone = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    done(admin.alter_user_scram_credentials([gone]))
    wait_for(lambda: not gets_in(login(secure, user)), "its login is refused")
    done(admin.alter_user_scram_credentials([upsertion(user, "new")]))
    wait_for(lambda: gets_in(login(secure, user, "new")), "the new login works")
    assert not gets_in(login(secure, user))
    assert produces(login(secure, user, "new"), topic)
    send()
    assert errors == [None, None]


def test_a_file_goes_before(secure: Secure, admin: AdminClient) -> None:
    done(admin.alter_user_scram_credentials([upsertion("ann", "another")]))
    options = login(secure, "ann", "another")
    assert not gets_in(options)
    assert gets_in(login(secure, "ann"))


def test_passwords_are_not_in_the_audit_log(secure: Secure, wire: Wire) -> None:
    name = next(NAMES)
    salted = bytes(range(32))
    change = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt"}
    tree = {"deletions": [], "upsertions": [change | {"salted_password": salted}]}
    assert int(wire.ask(51, 0, tree).results[0].error_code) == 0
    logs = "".join(Path(node.log_file).read_text() for node in secure.world.cluster.nodes)
    assert name in logs
    assert "salted_password" not in logs
    for bad in (
        {"iterations": 5},
        {"mechanism": 9},
        {"salted_password": b"short"},
        {"name": "a/b"},
    ):
        refused = {"deletions": [], "upsertions": [change | {"salted_password": salted} | bad]}
        assert int(wire.ask(51, 0, refused).results[0].error_code) in (33, 93)


# --- ACLs ---------------------------------------------------------------------------------------


def test_an_acl_lets_a_user_write_and_read_and_a_denial_does_not(
    secure: Secure, admin: AdminClient, user: str, topic: str
) -> None:
    options = login(secure, user)
    wait_for(lambda: gets_in(options), "it is let in")
    assert not produces(options, topic)
    done(admin.create_acls([binding(user, "WRITE", "TOPIC", topic)]))
    wait_for(lambda: produces(options, topic), "it may write")
    assert code(AdminClient(options).create_topics([NewTopic(next(NAMES), 1)])) in DENIED
    done(admin.create_acls([binding(user, "READ", "TOPIC", topic[:2], prefixed=True)]))
    done(admin.create_acls([binding(user, "READ", "GROUP", user)]))
    wait_for(lambda: reads(options, topic, user), "it may read, and use its group")
    done(admin.create_acls([binding(user, "WRITE", "TOPIC", topic, deny=True)]))
    wait_for(lambda: not produces(options, topic), "it may not write")
    told = admin.describe_acls(every(user)).result(PATIENCE_S)
    assert {(x.operation.name, x.permission_type.name) for x in told} == {
        ("WRITE", "ALLOW"),
        ("READ", "ALLOW"),
        ("WRITE", "DENY"),
    }
    assert len(told) == 4
    assert len(done(admin.delete_acls([every(user)]))) == 4
    assert admin.describe_acls(every(user)).result(PATIENCE_S) == []
    wait_for(lambda: not produces(options, topic), "it may nothing")


def reads(options: dict[str, Any], topic: str, group: str) -> bool:
    consumer = Consumer(options | {"group.id": group})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(5)
        if message is None or message.error() is not None:
            return False
        consumer.commit(message=message, asynchronous=False)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


def test_a_grant_of_the_file_goes_before_a_denial(secure: Secure, admin: AdminClient) -> None:
    done(admin.create_topics([NewTopic("open", 1)]))
    done(admin.create_acls([binding("ann", "ALL", "TOPIC", "*", deny=True)]))
    assert len(admin.describe_acls(every("ann")).result(PATIENCE_S)) == 1
    assert produces(login(secure, "ann"), "open")


def test_administrators_by_acl(secure: Secure, admin: AdminClient, user: str) -> None:
    """Each operation by itself."""
    mine, options = AdminClient(login(secure, user)), login(secure, user)
    wait_for(lambda: gets_in(options), "it is let in")
    name = f"{user}-made"

    def may(change: Callable[[], dict[Any, Any]]) -> bool:
        try:
            done(change())
        except KafkaException as refused:
            assert refused.args[0].code() in DENIED  # noqa: PT017 - either may be right
            return False
        return True

    assert not may(
        lambda: dict(mine.create_acls([binding(user, "ALL", "BROKER", "kafka-cluster")]))
    )
    done(admin.create_acls([binding(user, "CREATE", "TOPIC", user, prefixed=True)]))
    wait_for(lambda: may(lambda: dict(mine.create_topics([NewTopic(name, 1)]))), "it creates")
    assert not may(lambda: dict(mine.create_topics([NewTopic(f"other-{user}", 1)])))
    assert not may(lambda: dict(mine.delete_topics([name])))
    done(admin.create_acls([binding(user, "DELETE", "TOPIC", name)]))
    wait_for(lambda: may(lambda: dict(mine.delete_topics([name]))), "it deletes")


def test_what_no_acl_can_be_is_refused_by_itself(wire: Wire) -> None:
    good = {
        "resource_type": 2,
        "resource_name": next(NAMES),
        "resource_pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    bad: list[dict[str, Any]] = [
        {"resource_type": 1},
        {"resource_type": 4},
        {"resource_name": ""},
        {"resource_pattern_type": 2},
        {"principal": "ann"},
        {"principal": "User:"},
        {"operation": 1},
        {"permission_type": 1},
    ]
    answer = wire.ask(30, 3, {"creations": [good, *(good | each for each in bad)]})
    assert [int(each.error_code) for each in answer.results] == [0] + [42] * len(bad)


# --- quotas -------------------------------------------------------------------------------------


def quota(user: str | None, **rates: float | None) -> dict[str, Any]:
    ops = [
        {"key": key, "value": rate or 0.0, "remove": rate is None} for key, rate in rates.items()
    ]
    return {"entity": [{"entity_type": "user", "entity_name": user}], "ops": ops}


def altered(wire: Wire, *entries: dict[str, Any]) -> list[int]:
    answer = wire.ask(49, 1, {"entries": entries, "validate_only": False})
    return [int(each.error_code) for each in answer.entries]


def described(wire: Wire, match_type: int, match: str | None) -> dict[str | None, dict[str, float]]:
    component = {"entity_type": "user", "match_type": match_type, "match": match}
    answer = wire.ask(48, 1, {"components": [component], "strict": True})
    return {
        each.entity[0].entity_name: {value.key: value.value for value in each.values}
        for each in answer.entries
    }


def test_a_rate_holds_a_user_back(
    secure: Secure, admin: AdminClient, wire: Wire, user: str
) -> None:
    done(admin.create_topics([NewTopic(user, 1)]))
    done(admin.create_acls([binding(user, "WRITE", "TOPIC", user)]))
    assert altered(wire, quota(user, producer_byte_rate=1_000)) == [0]
    assert described(wire, 0, user) == {user: {"producer_byte_rate": 1_000}}
    throttled: list[Any] = []
    options = login(secure, user) | {"throttle_cb": throttled.append, "batch.size": 2_000}
    wait_for(lambda: gets_in(login(secure, user)), "it is let in")
    producer = Producer(options)

    def is_held_back() -> bool:
        producer.produce(user, b"v" * 1_000)
        producer.poll(0.1)
        return bool(throttled)

    wait_for(is_held_back, "it is told to wait")
    assert altered(wire, quota(user, producer_byte_rate=None)) == [0]
    assert described(wire, 0, user) == {}
    assert producer.flush(PATIENCE_S) == 0


def test_what_is_not_kept_to_is_refused_by_itself(wire: Wire) -> None:
    name = next(NAMES)
    hosts = quota(name, producer_byte_rate=1)
    hosts["entity"] = [{"entity_type": "ip", "entity_name": "::1"}]
    good = quota(name, consumer_byte_rate=10.0)
    bad = [hosts, quota(name, request_percentage=50.0), quota(name, producer_byte_rate=0.5)]
    assert altered(wire, *bad, good) == [42, 42, 42, 0]
    assert altered(wire, quota(None, consumer_byte_rate=1 << 40)) == [0]
    assert described(wire, 1, None) == {None: {"consumer_byte_rate": 1 << 40}}
    assert described(wire, 2, None).keys() >= {None, name}
    assert altered(wire, quota(None, consumer_byte_rate=None)) == [0]


def test_a_rate_holds_a_client_id_back(
    secure: Secure, admin: AdminClient, wire: Wire, user: str
) -> None:
    """Of a user; and others not."""
    client = next(NAMES)
    done(admin.create_topics([NewTopic(client, 1)]))
    done(admin.create_acls([binding(user, "WRITE", "TOPIC", client)]))
    wait_for(lambda: gets_in(login(secure, user)), "it is let in")
    entry = quota(user, producer_byte_rate=1_000)
    entry["entity"].append({"entity_type": "client-id", "entity_name": client})
    assert altered(wire, entry) == [0]
    asked = {"entity_type": "client-id", "match_type": 0, "match": client}
    (told,) = wire.ask(48, 1, {"components": [asked], "strict": False}).entries
    assert {each.entity_type: each.entity_name for each in told.entity} == {
        "user": user,
        "client-id": client,
    }
    assert described(wire, 0, user) == {}
    waits: dict[str, list[Any]] = {client: [], "other": []}
    for each, throttled in waits.items():
        options = {"client.id": each, "throttle_cb": throttled.append, "batch.size": 2_000}
        producer = Producer(login(secure, user) | options)
        for _ in range(10):
            producer.produce(client, b"v" * 1_000)
            producer.poll(0.1)
        assert producer.flush(PATIENCE_S) == 0
        producer.poll(0.1)
    assert waits[client]
    assert not waits["other"]
    entry["ops"][0]["remove"] = True
    assert altered(wire, entry) == [0]


# --- settings of groups -------------------------------------------------------------------------


def test_a_group_has_settings_of_its_own(admin: AdminClient, wire: Wire, topic: str) -> None:
    group, beat_ms, session_ms = next(NAMES), "consumer.heartbeat.interval.ms", SESSION_MS

    def change(name: str, value: str | None, operation: int = 0) -> int:
        configs = [{"name": name, "config_operation": operation, "value": value}]
        resource = {"resource_type": 32, "resource_name": group, "configs": configs}
        answer = wire.ask(44, 1, {"resources": [resource], "validate_only": False})
        return int(answer.responses[0].error_code)

    def shown() -> dict[str, tuple[str, int]]:
        asked = [{"resource_type": 32, "resource_name": group, "configuration_keys": None}]
        answer = wire.ask(32, 4, {"resources": asked})
        return {x.name: (x.value, x.config_source) for x in answer.results[0].configs}

    def told_interval() -> int:
        tree = {
            "group_id": group,
            "member_id": "a",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        }
        return int(wire.ask(68, 0, tree).heartbeat_interval_ms)

    assert told_interval() == 5_000
    assert change(beat_ms, "1234") == 0
    assert shown() == {beat_ms: ("1234", 8), session_ms: ("45000", 4)}
    assert told_interval() == 1234
    assert change(session_ms, "1000") == 40  # shorter than the interval
    assert [change(beat_ms, word) for word in ("9", "x", "")] == [40, 40, 40]
    assert change("share.session.timeout.ms", "45000") == 40
    assert change(beat_ms, "1", operation=2) == 40
    listed = wire.ask(74, 1, {"resource_types": [32]}).config_resources
    assert group in {each.resource_name for each in listed}
    assert change(beat_ms, None, operation=1) == 0
    assert shown() == {beat_ms: ("5000", 4), session_ms: ("45000", 4)}
