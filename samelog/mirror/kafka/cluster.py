"""What is asked of a Kafka cluster: its brokers and topics, ends, settings, groups.

Versions of requests are fixed: Kafka has had them since 3.1, and has them in 4.

Invariant: a request goes to the broker that answers it: a partition's leader, a group's
coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from samelog.config.tables.mirror import KafkaSource
from samelog.config.values import Address
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.mirror.errors import SourceUnreadable
from samelog.mirror.kafka.connection import BrokerConnection, Entrance, check, entrance_of

LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = (2, 6), (3, 12), (9, 8), (10, 4)
LIST_GROUPS, DESCRIBE_CONFIGS = (16, 4), (32, 4)
LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE = 2
TOPIC_CONFIG = 1
"""The source of a setting that somebody gave to the topic."""


class KafkaPartition(NamedTuple):
    """A partition, and who leads it; -1: nobody."""

    number: int
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic; `id`: 32 hexadecimal digits."""

    name: str
    id: str
    is_internal: bool
    partitions: tuple[KafkaPartition, ...]


class GroupOffset(NamedTuple):
    """Where a group is in a partition."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str


class KafkaCluster:
    """One cluster."""

    def __init__(self, config: KafkaSource) -> None:
        """Raises OSError: a file of the configuration cannot be read."""
        self.id = ""
        self.topics: dict[str, KafkaTopic] = {}
        self._bootstrap = config.bootstrap
        self._entrance: Entrance = entrance_of(config)
        self._brokers: dict[int, Address] = {}
        self._connections: dict[Address, BrokerConnection] = {}

    # --- brokers ----------------------------------------------------------------------------------

    async def connect(self, broker: int) -> BrokerConnection:
        """A connection of one's own. Raises SourceUnreadable."""
        address = self._brokers.get(broker)
        if address is None:
            raise SourceUnreadable(f"no broker {broker} is known")
        return await BrokerConnection.open(address, self._entrance)

    async def _shared(self, address: Address) -> BrokerConnection:
        known = self._connections.get(address)
        if known is None or known.is_over:
            known = await BrokerConnection.open(address, self._entrance)
            self._connections[address] = known
        return known

    async def _ask(self, broker: int, api: tuple[int, int], request: dict[str, Any]) -> Any:
        address = self._brokers.get(broker)
        if address is None:
            raise SourceUnreadable(f"no broker {broker} is known")
        return await (await self._shared(address)).ask(*api, request)

    async def _ask_any(self, api: tuple[int, int], request: dict[str, Any]) -> Any:
        """Any broker that answers."""
        problem = SourceUnreadable("no broker is configured")
        for address in dict.fromkeys((*self._brokers.values(), *self._bootstrap)):
            try:
                return await (await self._shared(address)).ask(*api, request)
            except SourceUnreadable as fault:
                problem = fault
        raise problem

    def close(self) -> None:
        """End the connections."""
        for connection in self._connections.values():
            connection.close()

    # --- topics -----------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Fetch brokers and topics again. Raises SourceUnreadable."""
        request = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self._ask_any(METADATA, request)
        self.id = answer.cluster_id or ""
        self._brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        self.topics = {
            each.name: _topic(each) for each in answer.topics if each.error_code == ErrorCode.none
        }

    async def offsets(
        self, topics: Iterable[KafkaTopic], timestamp: int
    ) -> dict[tuple[str, int], int]:
        """An offset of each partition: LATEST, EARLIEST, or the first of a time (-1: none)."""
        by_leader: dict[int, dict[str, list[dict[str, int]]]] = {}
        for topic in topics:
            for each in topic.partitions:
                wanted = {
                    "partition_index": each.number,
                    "current_leader_epoch": -1,
                    "timestamp": timestamp,
                }
                by_leader.setdefault(each.leader, {}).setdefault(topic.name, []).append(wanted)
        found: dict[tuple[str, int], int] = {}
        for leader, wanted_of in by_leader.items():
            request = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": n, "partitions": parts} for n, parts in wanted_of.items()],
            }
            answer = await self._ask(leader, LIST_OFFSETS, request)
            for topic_answer in answer.topics:
                for part in topic_answer.partitions:
                    name = topic_answer.name, part.partition_index
                    check(part.error_code, f"offsets of {name[0]}-{name[1]}")
                    found[name] = part.offset
        return found

    async def settings(self, topics: Sequence[str]) -> dict[str, dict[str, tuple[str, bool]]]:
        """Topic -> setting -> its value, and whether the topic has it of its own."""
        resources = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
            for name in topics
        ]
        request = {
            "resources": resources,
            "include_synonyms": False,
            "include_documentation": False,
        }
        if not resources:
            return {}
        answer = await self._ask_any(DESCRIBE_CONFIGS, request)
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        for each in answer.results:
            check(each.error_code, f"settings of {each.resource_name}")
            found[each.resource_name] = {
                config.name: (config.value or "", config.config_source == TOPIC_CONFIG)
                for config in each.configs
            }
        return found

    # --- groups -----------------------------------------------------------------------------------

    async def groups(self) -> list[str]:
        """All consumer groups. Raises SourceUnreadable."""
        found: dict[str, None] = {}
        for broker in self._brokers:
            answer = await self._ask(broker, LIST_GROUPS, {"states_filter": []})
            check(answer.error_code, "groups")
            kinds = ("consumer", "")
            found.update(
                (each.group_id, None) for each in answer.groups if each.protocol_type in kinds
            )
        return list(found)

    async def positions(self, groups: Sequence[str]) -> list[GroupOffset]:
        """Where groups are. Raises SourceUnreadable."""
        if not groups:
            return []
        request = {"key_type": 0, "coordinator_keys": list(groups)}
        found: list[GroupOffset] = []
        for each in (await self._ask_any(FIND_COORDINATOR, request)).coordinators:
            check(each.error_code, f"coordinator of {each.key}")
            asked = {
                "groups": [{"group_id": each.key, "topics": None}],
                "require_stable": False,
            }
            for group in (await self._ask(each.node_id, OFFSET_FETCH, asked)).groups:
                check(group.error_code, f"offsets of {group.group_id}")
                found += [
                    GroupOffset(
                        group.group_id,
                        topic.name,
                        part.partition_index,
                        part.committed_offset,
                        part.metadata or "",
                    )
                    for topic in group.topics
                    for part in topic.partitions
                    if part.committed_offset >= 0
                ]
        return found


def _topic(told: Any) -> KafkaTopic:
    parts = sorted(
        KafkaPartition(each.partition_index, each.leader_id, each.leader_epoch)
        for each in told.partitions
    )
    topic_id = "" if told.topic_id is None else told.topic_id.hex
    return KafkaTopic(told.name, topic_id, told.is_internal, tuple(parts))
