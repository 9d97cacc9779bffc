"""Hard resets of what is in data groups: what one group has yet to do, and to tell.

Group 0 has decided the ids and numbers of the new logs. The group's leader proposes the same in its
group, from what its member's copy of group 0 says, again and again until the two agree.

Invariant: a group reports a reset to group 0 only once an entry of the group records it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from samelog.placement.changes import GroupBegunAnew
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.placement import NewLog, OpenNewLog, OpenPartition
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State


def owed_reset(
    here: State, cluster: State, group: int, contents: Collection[int]
) -> tuple[str, list[NewLog]] | None:
    """Return the id of the reset that a group owes, with the logs to restart; None if it owes none.
    `contents`: the partitions that the table has in it.
    """
    logs = list(_older_logs(here, cluster, contents))
    reset_id = cluster.placement.resetting.get(group)
    if not logs and (reset_id is None or reset_id in here.resets.ids):
        return None
    return reset_id or logs[0].log_id, logs


def _older_logs(here: State, cluster: State, contents: Collection[int]) -> Iterator[NewLog]:
    """Logs of topics of which group 0 has newer ones than the group."""
    table = cluster.placement.partitions
    for topic_id in sorted({table[each].topic_id for each in contents if each in table}):
        known, topic = here.topics.by_id.get(topic_id), cluster.topics.by_id[topic_id]
        if known is not None and known.partition_numbers[0] < topic.partition_numbers[0]:
            bases = [table[each].epoch_base for each in topic.partition_numbers]
            yield NewLog(topic_id, topic.log_id, list(topic.partition_numbers), bases)


def begun_anew(here: State, cluster: State, group: int) -> GroupBegunAnew | None:
    """What group 0 has to be told; None: nothing."""
    reset_id = cluster.placement.resetting.get(group)
    if reset_id is None or reset_id not in here.resets.ids:
        return None
    return GroupBegunAnew(group, reset_id, here.epochs.first)


def opening(cluster: State, number: int) -> OpenPartition | OpenNewLog:
    """The command that opens a partition of group 0's table in its group, as it is now."""
    placed = cluster.placement.partitions[number]
    topic = cluster.topics.by_id[placed.topic_id]
    mirror = cluster.mirrors.of_topic(topic.topic_id)
    source = None if mirror is None else mirror.source
    command = _plain_opening(number, topic, cluster.placement.version, source)
    if not topic.present_log:
        return command
    return OpenNewLog(command, topic.present_log, list(topic.former_logs), placed.epoch_base)


def _plain_opening(
    number: int, topic: Topic, since: int, source: MirrorSource | None
) -> OpenPartition:
    return OpenPartition(
        number,
        topic.topic_id,
        topic.name,
        dict(topic.settings),
        topic.created_ms,
        list(topic.partition_numbers),
        since,
        source,
    )
