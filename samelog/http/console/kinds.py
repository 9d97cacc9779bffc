"""What a console shows of topics that are more, or less, than a log: views, which store nothing;
mirrors; keys that count once; and the topics that are generated from the replicated state.

Invariant: as in `look`.
"""

from __future__ import annotations

from dataclasses import asdict

from samelog.http.console.document import ShownRow, ShownRows
from samelog.sequencer.admin.mirroring.mirrors import mirror_info
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.topics import partition_name, view_info, views_in
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.feeds import PARTITIONS, Feed, StateTopic
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.wire.plain import to_json


def views(node: ServedNode) -> ShownRows:
    """Topics that store nothing, and show rows of another."""
    for view in views_in(node):
        yield view.name, to_json(view_info(node, view))


def mirrors(node: ServedNode) -> ShownRows:
    """Topics that are, or were, those of another cluster."""
    state = node.logs.machine.state
    for topic_id in tuple(state.mirrors.topics):
        if topic_id in state.topics.by_id and topic_id in state.mirrors.topics:
            found = yield from mirror_info(node, state.topics.by_id[topic_id])
            row = to_json(found)
            row["partitions"] = found.partition_count
            row["left_open"] = sum(each.left_open is not None for each in found.partitions)
            yield found.topic, row


def keys(node: ServedNode) -> ShownRows:
    """Partitions of which this node has an index of keys."""
    held = ((node.logs, node.care), *((logs, care) for logs, _, care in node.data_groups.held))
    for logs, care in held:
        for number, keyed in tuple(logs.machine.state.keys.by_partition.items()):
            topic, index = partition_name(node.logs.machine, number)
            if topic:
                here = asdict(care.keys.reach(number))
                row = {"topic": topic, "partition": index, **_keyed(logs.machine, number, keyed)}
                yield f"{topic}/{index}", row | here


def _keyed(machine: StateMachine, number: int, keyed: KeyedPartition) -> dict[str, int]:
    end = (
        machine.state.partitions.by_number[number].next_offset
        if number in machine.state.partitions.by_number
        else 0
    )
    return {"floor": keyed.floor, "end_offset": end, "agreed_blocks": len(keyed.agreed)}


def internal(node: ServedNode) -> ShownRows:
    """Topics that are generated from the state, as far as there is anything in them."""
    state = node.logs.machine.state
    for name in StateTopic:
        feeds = state.feeds.of(name)
        if feeds and name not in state.topics.by_name:
            told = [_feed(number, feeds[number]) for number in sorted(feeds)]
            yield name.value, {"name": name.value, "partitions": PARTITIONS, "feeds": told}


def _feed(number: int, feed: Feed) -> ShownRow:
    return {
        "partition": number,
        "end_offset": feed.next_offset,
        "keys": len(feed.newest),
        "tombstones": len(feed.gone),
    }
