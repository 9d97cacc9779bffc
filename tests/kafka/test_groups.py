"""Groups over the wire: every version of every API, asked by hand, on a real cluster."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from samelog.kafka.registry import APIS
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire

OFFSET_COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, OFFSET_DELETE, CREATE_TOPICS = 15, 16, 42, 47, 19
CONSUMER_HEARTBEAT, METADATA = 68, 3
IDS_FROM = 10
"""From this version on OffsetCommit and OffsetFetch name topics by their ids."""
NO_RIGHTS = {"include_topic_authorized_operations": False}
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def coordinator(world: World) -> Callable[[], Wire]:
    """Connects to the node that coordinates; the topic `t` has four partitions."""
    node = world.leader()
    assert node.kafka is not None
    address = node.kafka
    with Wire(address) as wire:
        topic = {"name": "t", "num_partitions": 4, "replication_factor": 1}
        tree = {"topics": [{**topic, "assignments": [], "configs": []}], "timeout_ms": 5000}
        wire.ask(CREATE_TOPICS, 4, tree)
        wait_for(lambda: _names_itself(wire), "the leader coordinates")
    return lambda: Wire(address)


def _names_itself(wire: Wire) -> bool:
    found = wire.ask(FIND, 1, {"key": "g", "key_type": 0})
    return bool(found.error_code == 0 and found.port == wire.socket.getpeername()[1])


def versions(key: int) -> range:
    """What is advertised."""
    return range(APIS[key].first, APIS[key].last + 1)


SAID = {
    JOIN: ("group_id", "member_id", "group_instance_id"),
    HEARTBEAT: ("group_id", "member_id", "group_instance_id", "generation_id"),
    SYNC: ("group_id", "member_id", "group_instance_id", "generation_id"),
    LEAVE: ("group_id", "member_id"),
    OFFSET_COMMIT: ("group_id", "member_id", "group_instance_id"),
    OFFSET_FETCH: ("group_id",),
    OFFSET_DELETE: ("group_id",),
    CONSUMER_HEARTBEAT: ("group_id", "member_id"),
}
"""What requests say of the member that asks."""


class Member:
    """A member of a group of its own, in whatever versions."""

    def __init__(self, wire: Wire, *, instance: str | None = None) -> None:
        self.wire = wire
        self.group = f"g{next(NUMBERS)}"
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.session_timeout_ms = 10_000

    def ask(self, key: int, version: int, tree: Mapping[str, Any]) -> Any:
        """Ask, and fail on an error of the whole request."""
        mine = {
            "group_id": self.group,
            "member_id": self.member_id,
            "generation_id": self.generation,
            "group_instance_id": self.instance,
        }
        return self.wire.ask(key, version, {**{n: mine[n] for n in SAID.get(key, ())}, **tree})

    def join(self, version: int = 5) -> Any:
        """Join, in two steps where the version has them."""
        answer = self.try_join(version)
        assert answer.error_code == 0
        return answer

    def try_join(self, version: int = 5) -> Any:
        """The answer to joining, whatever it is."""
        wish = {
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\0"}],
            "reason": None,
        }
        answer = self.ask(JOIN, version, wish)
        if answer.error_code == 79:
            self.member_id = answer.member_id
            answer = self.ask(JOIN, version, wish)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, version: int = 3) -> Any:
        """Give itself an assignment."""
        mine = [{"member_id": self.member_id, "assignment": b"mine"}]
        tree = {"assignments": mine, "protocol_type": "consumer", "protocol_name": "range"}
        return self.ask(SYNC, version, tree)

    def commit(self, offset: int, version: int = 7, topic: str = "t", *, partition: int = 1) -> int:
        """Commit one partition; its error."""
        place = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": "note",
        }
        tree: dict[str, Any] = {
            "generation_id_or_member_epoch": self.generation,
            "topics": [{**self._named(topic, version), "partitions": [place]}],
        }
        if 2 <= version <= 4:
            tree["retention_time_ms"] = -1
        answer = self.ask(OFFSET_COMMIT, version, tree)
        assert version < IDS_FROM or answer.topics[0].topic_id == tree["topics"][0]["topic_id"]
        return int(answer.topics[0].partitions[0].error_code)

    def _named(self, topic: str, version: int) -> dict[str, Any]:
        """A topic as a request names it; one that does not exist has an id that nobody knows."""
        if version < IDS_FROM:
            return {"name": topic}
        asked = [{"topic_id": None, "name": topic}]
        tree = {"topics": asked, "allow_auto_topic_creation": False}
        (found,) = self.wire.ask(METADATA, 12, {**tree, **NO_RIGHTS}).topics
        return {"topic_id": found.topic_id or uuid.uuid4()}

    def committed(self, version: int = 7, *, everything: bool = False) -> dict[int, Any]:
        """Partition -> what OffsetFetch says."""
        indexes = {"partition_indexes": [0, 1, 9]}
        topics = None if everything else [{**self._named("t", version), **indexes}]
        tree: dict[str, Any] = {"topics": topics, "require_stable": False}
        if version >= 8:
            group = {"group_id": self.group, "member_id": None, "member_epoch": -1}
            tree = {"groups": [{**group, "topics": topics}], "require_stable": False}
        answer = self.ask(OFFSET_FETCH, version, tree)
        told = answer.groups[0] if version >= 8 else answer
        return {part.partition_index: part for topic in told.topics for part in topic.partitions}


@pytest.fixture
def member(coordinator: Callable[[], Wire]) -> Iterator[Member]:
    with coordinator() as wire:
        yield Member(wire)


@pytest.mark.parametrize("version", versions(FIND))
def test_the_leader_coordinates(world: World, version: int) -> None:
    leader = world.leader().kafka
    for node in world.cluster.nodes:
        assert node.kafka is not None
        with Wire(node.kafka) as wire:
            tree = {"key": "g", "key_type": 0, "coordinator_keys": ["g", "h"]}
            answer = wire.ask(FIND, version, tree)
            found = answer.coordinators if version >= 4 else [answer]
            assert {(each.host, each.port) for each in found} == {leader}
            assert len(found) == (2 if version >= 4 else 1)


def test_transactions_have_the_same_coordinator(member: Member) -> None:
    found = [member.wire.ask(FIND, 3, {"key": "x", "key_type": kind}) for kind in (0, 1)]
    assert found[0] == found[1]
    assert found[0].error_code == 0
    assert member.wire.ask(FIND, 3, {"key": "x", "key_type": 2}).error_code == 42


@pytest.mark.parametrize("version", versions(JOIN))
def test_join(member: Member, version: int) -> None:
    answer = member.join(version)
    assert answer.leader == member.member_id
    assert [each.metadata for each in answer.members] == [b"\0\1\0\0\0\0"]
    assert member.member_id.startswith("test-")


@pytest.mark.parametrize("version", versions(SYNC))
def test_sync(member: Member, version: int) -> None:
    member.join()
    assert member.sync(version).assignment == b"mine"


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_heartbeat(member: Member, version: int) -> None:
    member.join()
    assert member.ask(HEARTBEAT, version, {}).error_code == 0
    assert member.ask(HEARTBEAT, version, {"generation_id": 7}).error_code == 22
    assert member.ask(HEARTBEAT, version, {"member_id": "nobody"}).error_code == 25


@pytest.mark.parametrize("version", versions(LEAVE))
def test_leave(member: Member, version: int) -> None:
    member.join()
    who = {"member_id": member.member_id, "group_instance_id": None, "reason": None}
    answer = member.ask(LEAVE, version, {"members": [who]})
    assert answer.error_code == 0
    assert member.ask(HEARTBEAT, 0, {}).error_code == 25


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_commit(member: Member, version: int) -> None:
    member.join()
    member.sync()
    assert member.commit(7, version) == 0
    assert member.commit(7, version, "nowhere") == (3 if version < IDS_FROM else 100)
    member.generation -= 1
    assert member.commit(8, version) == 22
    assert member.committed()[1].committed_offset == 7


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_fetch(member: Member, version: int) -> None:
    assert {part.committed_offset for part in member.committed(version).values()} == {-1}
    member.commit(7)
    told = member.committed(version)
    assert (told[1].committed_offset, told[1].metadata) == (7, "note")
    assert [told[0].committed_offset, told[9].committed_offset] == [-1, -1]
    assert {int(part.error_code) for part in told.values()} == {0}
    if version >= 2:
        assert list(member.committed(version, everything=True)) == [1]


def test_topics_that_are_asked_for_by_their_ids_are_answered_by_them(member: Member) -> None:
    member.commit(7)
    (topic_id,) = member._named("t", IDS_FROM).values()
    strange = uuid.uuid4()
    asked = [{"topic_id": each, "partition_indexes": [1]} for each in (topic_id, strange)]
    for topics, known in (
        (asked, {topic_id: (7, 0), strange: (-1, 100)}),
        (None, {topic_id: (7, 0)}),
    ):
        group = {"group_id": member.group, "member_id": None, "member_epoch": -1, "topics": topics}
        answer = member.wire.ask(OFFSET_FETCH, 10, {"groups": [group], "require_stable": False})
        assert known == {
            topic.topic_id: (part.committed_offset, int(part.error_code))
            for topic in answer.groups[0].topics
            for part in topic.partitions
        }


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_describe(member: Member, version: int) -> None:
    member.join()
    member.sync()
    tree = {"groups": [member.group, "nobody"], "include_authorized_operations": False}
    mine, other = member.ask(DESCRIBE, version, tree).groups
    assert (mine.group_state, mine.protocol_data, mine.error_code) == ("Stable", "range", 0)
    assert [each.member_assignment for each in mine.members] == [b"mine"]
    assert other.group_state == "Dead"
    assert int(other.error_code) == (0 if version < 6 else 69)


@pytest.mark.parametrize("version", versions(LIST))
def test_list(member: Member, world: World, version: int) -> None:
    member.commit(1)
    tree = {"states_filter": ["Empty"], "types_filter": ["classic"]}
    listed = {each.group_id for each in member.ask(LIST, version, tree).groups}
    assert member.group in listed
    follower = world.followers()[0].kafka
    assert follower is not None
    with Wire(follower) as wire:
        assert wire.ask(LIST, version, tree).groups == ()
    if version >= 4:
        others = member.ask(LIST, version, {**tree, "states_filter": ["Stable"]}).groups
        assert member.group not in {each.group_id for each in others}


@pytest.mark.parametrize("version", versions(DELETE))
def test_delete(member: Member, version: int) -> None:
    member.commit(1)
    busy = Member(member.wire)
    busy.join()
    names = [member.group, busy.group, "nobody"]
    answer = member.ask(DELETE, version, {"groups_names": names})
    assert [each.error_code for each in answer.results] == [0, 68, 69]
    assert member.committed()[1].committed_offset == -1


def test_offsets_are_deleted(member: Member) -> None:
    member.commit(1)
    partitions = [{"partition_index": 1}, {"partition_index": 9}]
    tree = {"topics": [{"name": "t", "partitions": partitions}]}
    [topic] = member.ask(OFFSET_DELETE, 0, tree).topics
    assert [each.error_code for each in topic.partitions] == [0, 3]
    assert member.committed()[1].committed_offset == -1
    member.group = str(uuid.uuid4())
    assert member.ask(OFFSET_DELETE, 0, tree).error_code == 69


def test_other_nodes_send_members_on(member: Member, world: World) -> None:
    member.join()
    member.sync()
    follower = world.followers()[0].kafka
    assert follower is not None
    with Wire(follower) as wire:
        member.wire = wire
        assert member.ask(HEARTBEAT, 4, {}).error_code == 16
        assert member.commit(7) == 16
        assert member.sync().error_code == 16
        assert member.committed(7)[1].error_code == 16
        tree = {"groups": [member.group], "include_authorized_operations": False}
        assert member.ask(DESCRIBE, 5, tree).groups[0].error_code == 16


def test_two_static_members_with_one_id(coordinator: Callable[[], Wire]) -> None:
    with coordinator() as wire:
        first, second = Member(wire, instance="i"), Member(wire, instance="i")
        second.group = first.group
        first.join()
        first.sync()
        second.join()
        assert first.ask(HEARTBEAT, 4, {}).error_code == 82
        assert second.sync().assignment == b"mine"


def heartbeat_848(member: Member, version: int, epoch: int, **more: Any) -> Any:
    tree = {
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
        **more,
    }
    return member.ask(CONSUMER_HEARTBEAT, version, tree)


@pytest.mark.parametrize("version", versions(CONSUMER_HEARTBEAT))
def test_the_consumer_protocol(member: Member, version: int) -> None:
    member.member_id = "" if version == 0 else str(uuid.uuid4())
    joined = heartbeat_848(member, version, 0)
    assert (joined.error_code, joined.member_epoch) == (0, 1)
    [topic] = joined.assignment.topic_partitions
    assert topic.partitions == (0, 1, 2, 3)
    member.member_id = joined.member_id
    again = heartbeat_848(member, version, 1, topic_partitions=None)
    assert (again.error_code, again.assignment) == (0, None)
    tree = {"group_ids": [member.group, "x"], "include_authorized_operations": False}
    mine, other = member.ask(69, version, tree).groups
    assert (mine.group_state, mine.assignor_name, other.error_code) == ("Stable", "uniform", 69)
    [described] = mine.members
    assert described.assignment.topic_partitions[0].topic_name == "t"
    member.generation = 1
    assert member.commit(7, 9) == 0
    member.generation = 0
    assert member.commit(8, 9) == 113
    assert heartbeat_848(member, version, -1).member_epoch == -1


def test_expressions_that_mean_nothing_are_refused(member: Member) -> None:
    member.member_id = str(uuid.uuid4())
    refused = heartbeat_848(member, 1, 0, subscribed_topic_regex="^t(")
    assert (refused.error_code, "missing )" in refused.error_message) == (128, True)
    assert heartbeat_848(member, 1, 0, subscribed_topic_regex="^t.*").error_code == 0
    assert heartbeat_848(member, 1, 0, server_assignor="best").error_code == 112
