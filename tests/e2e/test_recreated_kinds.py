"""Groups, sessions, sites, members, views and mirrors that are created, used, deleted and created
again, while clients of each kind are alive (docs/design/recreation.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from samelog import Publisher, Subscriber, TopicDeleted
from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import (
    CreateTopic,
    CreateView,
    DeleteTopic,
    DescribeGroup,
    RetireSession,
)
from samelog.admin.site_requests import CreateSite, DropSite
from samelog.http.sidecar_api import shipping_view
from samelog.publisher.errors import NotMerged
from tests.e2e.commands import as_json
from tests.e2e.every_client import GROUP, SESSION, TOPIC, EveryClient
from tests.e2e.harness import wait_for
from tests.e2e.mirroring import two_clusters
from tests.e2e.recreated import local_publisher
from tests.patience import PATIENCE_S
from tests.spark.local import Journal


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[EveryClient]:
    """One of each kind; all tests of this file share them, and leave them as they were."""
    with (
        two_clusters(tmp_path_factory.mktemp("kinds"), source_nodes=3) as pair,
        EveryClient(pair) as made,
    ):
        yield made


@pytest.fixture
def admin(clients: EveryClient) -> AdminClient:
    return AdminClient({"bootstrap.servers": clients.bootstrap})


# --- sites and members: no client goes by them -----------------------------------------------


def test_a_site_is_created_again(clients: EveryClient) -> None:
    for votes in (True, False):
        ask(clients.config, CreateSite("eu", votes=votes))
        clients.write()
        clients.read_all()
        ask(clients.config, DropSite("eu"))
    clients.write()
    clients.read_all()


def test_a_member_is_added_again(clients: EveryClient) -> None:
    world, options = clients.world, ("--config", clients.world.cluster.client_file)
    node = world.followers()[0]
    as_json("node", "remove", node.name, "--confirm", node.name, *options)
    wait_for(lambda: node.exit_code() is not None, "the removed node ends")
    clients.write()
    clients.read_all()
    as_json("node", "add", node.name, str(node.address), *options)
    node.start()
    world.wait_live(node)
    clients.write()
    clients.read_all()


# --- groups ----------------------------------------------------------------------------------


def delete_group(admin: AdminClient, group: str) -> None:
    [future] = admin.delete_consumer_groups([group], request_timeout=PATIENCE_S).values()
    future.result(PATIENCE_S)


def committed(clients: EveryClient, group: str) -> list[int]:
    return [each.committed for each in ask(clients.config, DescribeGroup(group)).partitions]


def test_a_group_with_members_is_not_deleted(clients: EveryClient, admin: AdminClient) -> None:
    world = clients.world
    with world.subscriber("ng", TOPIC, group="ng") as member:
        wait_for(lambda: bool(member.batch(timeout=0.2)), "it is a member")
        for group in (GROUP, "ng"):
            with pytest.raises(KafkaException) as refused:
                delete_group(admin, group)
            assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    clients.write()
    clients.read_all()


def test_a_kafka_group_that_is_used_again_inherits_nothing(
    clients: EveryClient, admin: AdminClient
) -> None:
    for _ in range(2):
        consumer = Consumer(
            {
                "bootstrap.servers": clients.bootstrap,
                "group.id": "again",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([TOPIC])
        found: list[bytes | None] = []
        while len(found) < len(clients.written):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is None:
                found.append(message.value())
        assert sorted(map(bytes, filter(None, found))) == sorted(clients.written)
        consumer.commit(asynchronous=False)
        consumer.close()
        assert committed(clients, "again") != []
        delete_group(admin, "again")
        with pytest.raises(AdminError):
            committed(clients, "again")


def test_a_native_group_that_is_used_again_inherits_nothing(
    clients: EveryClient, admin: AdminClient
) -> None:
    for life in range(2):
        found: list[bytes | None] = []
        with clients.world.subscriber(f"again-{life}", TOPIC, group="native-again") as member:
            wait_for(
                lambda m=member, f=found: len(_extend(m, f)) >= len(clients.written),  # type: ignore[misc]
                "it reads all",
            )
            assert sorted(map(bytes, filter(None, found))) == sorted(clients.written)
            member.commit()
        wait_for(lambda: committed(clients, "native-again") != [], "its position")
        wait_for(lambda: _is_deleted(admin, "native-again"), "it is empty and deleted")


def _extend(subscriber: Subscriber, found: list[bytes | None]) -> list[bytes | None]:
    found += [each.value for each in subscriber.batch(timeout=0.2)]
    return found


def _is_deleted(admin: AdminClient, group: str) -> bool:
    try:
        delete_group(admin, group)
    except KafkaException:
        return False
    return True


def test_a_query_goes_on_when_the_group_of_its_positions_was_deleted(
    clients: EveryClient, admin: AdminClient
) -> None:
    options = {"startingOffsets": "earliest", "positionGroup": "etl"}
    query = Journal(config=clients.world.cluster.client_file, subscribe=TOPIC, **options)
    found = [value for batch in query.run() for value in batch]
    assert sorted(found) == sorted(clients.written)
    for _ in range(2):
        clients.write()
        clients.read_all()
        query.reader.commit(query.last)
        wait_for(lambda: _is_deleted(admin, "etl"), "its positions are committed and deleted")
        found += [value for batch in query.run() for value in batch]
        assert sorted(found) == sorted(clients.written)
    query.reader.stop()


# --- sessions --------------------------------------------------------------------------------


def test_a_retired_session_fences_its_publisher_and_goes_to_another_directory(
    clients: EveryClient,
) -> None:
    ask(clients.config, RetireSession(SESSION, confirm=SESSION))
    clients.native.append(b"fenced")
    wait_for(lambda: "was retired" in _not_merged(clients.native), "the publisher says so")
    clients.write("native")
    clients.read_all()
    place = str(clients.world.directory / "another")
    clients.replace_native(
        Publisher(TOPIC, session=SESSION, directory=place, config=clients.config)
    )
    clients.write()
    clients.read_all()


def _not_merged(publisher: Publisher) -> str:
    with pytest.raises(NotMerged) as raised:
        publisher.wait_merged(timeout=0.2)
    return str(raised.value)


def test_a_retired_session_of_a_sidecar_is_reported_and_goes_to_another_name(
    clients: EveryClient,
) -> None:
    with local_publisher(clients.world, "second", TOPIC) as publisher:
        publisher.append(b"second-1")
        clients.written.append(b"second-1")
        clients.read_all()
        ask(clients.config, RetireSession("second", confirm="second"))
        publisher.append(b"fenced")

        def told() -> bool:
            sessions = shipping_view(clients.shipping, "", "").sessions
            return any("was retired" in str(each) for each in sessions)

        wait_for(told, "the sidecar's status says so")
    clients.write()
    clients.read_all()


# --- transactional ids -----------------------------------------------------------------------


def test_a_transactional_id_that_is_used_again_fences_its_producer(clients: EveryClient) -> None:
    rival = clients.new_producer()
    with pytest.raises(KafkaException):
        clients.produce(b"fenced")
    clients.write("kafka")
    clients.read_all()
    clients.producer = rival
    clients.write()
    clients.read_all()


# --- views -----------------------------------------------------------------------------------


def test_a_view_is_created_again(clients: EveryClient, admin: AdminClient) -> None:
    world, config = clients.world, clients.config

    ask(config, CreateTopic("base", 1, {}))
    ask(config, CreateView("v", "SELECT * FROM base WHERE _key = 'a'"))
    with world.publisher("of-base", "base") as publisher:
        for key in (b"a", b"b"):
            publisher.append(b"value of " + key, key=key)
        publisher.wait_merged(timeout=PATIENCE_S)
        with world.subscriber("v", "v") as by_name, world.subscriber("w", "v*") as by_pattern:
            for reader in (by_name, by_pattern):
                found: list[bytes | None] = []
                wait_for(lambda r=reader, f=found: bool(_extend(r, f)), "it reads the view")  # type: ignore[misc]
                assert found == [b"value of a"]
            ask(config, DeleteTopic("v", in_use=True, confirm="v"))
            ask(config, CreateView("v", "SELECT * FROM base WHERE _key = 'b'"))
            with pytest.raises(TopicDeleted):
                wait_for(lambda: bool(by_name.batch(timeout=0.2)), "it stops")
            found = []
            wait_for(lambda: bool(_extend(by_pattern, found)), "it reads the new view")
            assert found == [b"value of b"]
        publisher.append(b"more", key=b"b")
        publisher.wait_merged(timeout=PATIENCE_S)
    described = admin.describe_topics(TopicCollection(["v"]))["v"].result(PATIENCE_S)
    assert len(described.partitions) == 1
    clients.write()
    clients.read_all()


# --- mirrors ---------------------------------------------------------------------------------


def test_a_mirror_is_created_again(clients: EveryClient) -> None:
    """The last test: the mirror is not continued behind it."""
    there, mirrored = clients.pair.destination.cluster.client_config(), f"eu.{TOPIC}"
    with pytest.raises(AdminError, match="in use by"):
        ask(there, DeleteTopic(mirrored, confirm=mirrored))
    ask(there, DeleteTopic(mirrored, in_use=True, confirm=mirrored))
    with pytest.raises(TopicDeleted):
        wait_for(lambda: bool(clients.mirrored.batch(timeout=0.2)), "its reader stops")
    clients.write()
    clients.read_all("mirror")
    copied: list[bytes | None] = []
    with clients.pair.destination.subscriber("again", mirrored) as reader:
        wait_for(lambda: len(_extend(reader, copied)) >= len(clients.written), "it is copied again")
    assert sorted(map(bytes, filter(None, copied))) == sorted(clients.written)
