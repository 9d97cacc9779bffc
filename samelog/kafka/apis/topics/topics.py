"""What can be asked for about topics: their names, how many partitions, which settings.

Invariant: nothing that is refused here changed anything, and the refusal says what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kio.schema.errors import ErrorCode

from samelog.format.errors import InvalidName
from samelog.format.names import check_topic_name
from samelog.kafka.codec.errors import ApiError
from samelog.sequencer.state.topic_settings import KNOWN, problem_with
from samelog.sequencer.state.types import Topic

PARTITIONS_MAX = 10_000


def check_name(name: str) -> str:
    """Raises ApiError unless `name` is one for topics."""
    try:
        return check_topic_name(name)
    except InvalidName as error:
        raise ApiError(ErrorCode.invalid_topic_exception, str(error)) from error


def check_partitions(count: int) -> int:
    """Raises ApiError unless a topic may have so many partitions."""
    if not 1 <= count <= PARTITIONS_MAX:
        text = f"{count} partitions; a topic has 1 to {PARTITIONS_MAX}"
        raise ApiError(ErrorCode.invalid_partitions, text)
    return count


def check_replicas(count: int, nodes: int) -> None:
    """Raises ApiError unless there are so many nodes. All nodes hold every partition anyhow."""
    if count == 0 or count < -1 or count > nodes:
        text = f"replication factor {count}; there are {nodes} nodes, and each holds every topic"
        raise ApiError(ErrorCode.invalid_replication_factor, text)


def check_settings(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings, those left out that are null (their default). Raises ApiError."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if value is None and key in KNOWN:
            continue
        problem = problem_with(key, value or "")
        if problem is not None:
            raise ApiError(ErrorCode.invalid_config, problem)
        found[key] = value or ""
    return found


def id_of(topic: Topic) -> UUID:
    """The topic's id, as Kafka writes ids: another one after a hard reset."""
    return UUID(topic.log_id)


def denied(topic: str) -> ApiError:
    """A client has no right to a topic."""
    return ApiError(ErrorCode.topic_authorization_failed, f"no right to topic {topic!r}")


def unknown(topic: str) -> ApiError:
    """There is no such topic."""
    return ApiError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")
