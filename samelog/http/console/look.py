"""One look at a node for its console: what administrators may ask for, put into a document.

Invariant: looking changes nothing; it leaves the event loop to others every millisecond or two.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import samelog
from samelog.admin.requests import GetElections, ListSubscribers
from samelog.admin.site_requests import ListSites
from samelog.http.console import kinds
from samelog.http.console.alarms import alarms
from samelog.http.console.document import Document, Section, ShownRows
from samelog.runtime.counters import Histogram
from samelog.sequencer.admin.groups import group_lags, group_row
from samelog.sequencer.admin.parts import ReplicaParts, ServedNode
from samelog.sequencer.admin.readers import list_subscribers
from samelog.sequencer.admin.sessions import session_rows
from samelog.sequencer.admin.siting.sites import list_sites
from samelog.sequencer.admin.status import elections, node_info, records_lacked
from samelog.sequencer.admin.topics import partition_info, partition_name, topic_info
from samelog.wire.plain import to_json

SLICE_S = 0.001


async def look(node: ServedNode, expiries: Callable[[], Mapping[str, float]]) -> Document:
    """What there is to show now. `expiries`: when certificates expire, in seconds of the epoch."""
    found: dict[str, Section] = {}
    for name, rows in SECTIONS.items():
        found[name] = await _sliced(rows(node))
    found["certificates"] = {
        name: {"expires_ms": round(1000 * at)} for name, at in expiries().items()
    }
    found["alarms"] = alarms(found)
    return {name: rows for name, rows in found.items() if rows}


async def _sliced(rows: ShownRows) -> Section:
    found, until = {}, time.monotonic() + SLICE_S
    for shown in rows:
        if shown is not None:
            found[shown[0]] = shown[1]
        if time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_S
    return found


def _cluster(node: ServedNode) -> ShownRows:
    raft, config = node.raft.group.raft, node.member.config
    leader = None if raft.leader is None else node.peers.members.name(raft.leader)
    yield (
        "",
        {
            "cluster": config.cluster,
            "node": config.name,
            "version": samelog.__version__,
            "leader": leader,
            "term": raft.term,
            "role": raft.role.value,
            "commit_index": raft.commit_index,
            "applied_index": node.raft.replica.applied_index,
            "first_index": raft.first_index,
            "last_index": raft.last_index,
            "level": node.logs.machine.state.members.level,
            "now_ms": node.member.clock.wall_ms(),
        },
    )


def _totals(node: ServedNode) -> ShownRows:
    measures, traffic = node.member.measures, node.logs.intake.traffic
    yield (
        "",
        {
            "received_bytes": traffic.total_bytes,
            "received_records": traffic.total_records,
            "merged_bytes": measures.merged_bytes,
            "sent_bytes": node.member.connections.sent_bytes,
            "sent_records": measures.sent_records,
            "publishers": len(node.member.connections.publishers),
            "readers": len(node.member.connections.pulls),
            "append_to_merged": _histogram(measures.append_to_merged),
            "append_to_read": _histogram(measures.append_to_read),
            "commit": _histogram(node.raft.group.commit_times),
        },
    )


def _histogram(found: Histogram) -> dict[str, Any]:
    return {"bounds": list(found.bounds), "counts": list(found.counts)}


def _disk(node: ServedNode) -> ShownRows:
    try:
        usage = shutil.disk_usage(node.member.config.data)
    except OSError:
        return
    yield "", {"used_bytes": usage.used, "free_bytes": usage.free}


def _troubles(node: ServedNode) -> ShownRows:
    """Sentences on what is wrong with this node; empty ones are all right."""
    archive, raft = node.care.archive, node.raft.group.raft
    held = ((node.logs, node.raft, node.care), *node.data_groups.held)
    is_voter = node.peers.number in raft.voters
    may_not_vote = "" if raft.may_vote or not is_voter else "it counts for nothing until let in"
    yield (
        "",
        {
            "replica_halted": _joined(parts.group.halted for _, parts, _ in held),
            "may_not_vote": may_not_vote,
            "intake_stopped": _joined(str(logs.intake.stopped or "") for logs, _, _ in held),
            "diverged": _joined(_diverged(held)),
            "damage": _joined(_damage(node, held)),
            "config_refused": node.member.status.config_problem,
            "policy_refused": archive.policy.problem,
            "policies_differ": ", ".join(archive.disagreements()),
            "copies_fail": _joined(care.archive.copies.trouble for _, _, care in held),
            "archive_held": ", ".join(_archive_held(held)),
        },
    )


def _joined(texts: Iterable[str]) -> str:
    """Each once; several groups may say the same."""
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _diverged(held: Iterable[ReplicaParts]) -> Iterator[str]:
    for logs, _, _ in held:
        yield from logs.merging.troubles.values()


def _archive_held(held: Iterable[ReplicaParts]) -> Iterator[str]:
    for _, _, care in held:
        yield from care.archive.rounds.held


def _damage(node: ServedNode, held: Iterable[ReplicaParts]) -> Iterator[str]:
    for number, why in node.data_groups.damaged.items():
        yield f"the replica of group {number} cannot begin: {why}"
    for _, _, care in held:
        yield from (*care.scrubber.troubles, *care.file_guard.troubles)


def _nodes(node: ServedNode) -> ShownRows:
    for number, member in tuple(node.peers.members.all.items()):
        known = node.raft.group.raft.progress(number)
        yield (
            member.name,
            {
                **to_json(node_info(node, member)),
                "connected": node.peers.presence.is_there(number),
                "match_index": None if known is None else known.match,
                "lag_records": records_lacked(node, number),
            },
        )


def _topics(node: ServedNode) -> ShownRows:
    for topic in tuple(node.logs.machine.state.topics.by_id.values()):
        yield topic.name, to_json(topic_info(topic))


def _partitions(node: ServedNode) -> ShownRows:
    for number in tuple(node.logs.machine.state.partitions.by_number):
        if number in node.logs.machine.state.partitions.by_number:
            row = partition_info(node, number)
            yield f"{row.topic}/{row.partition}", to_json(row)


def _sessions(node: ServedNode) -> ShownRows:
    for session in session_rows(node):
        if session is None:
            yield None
            continue
        row = to_json(session)
        row["topics"] = sorted({each.topic for each in session.partitions})
        del row["partitions"]
        yield session.session, row


def _waiting(node: ServedNode) -> ShownRows:
    """Of each topic how many bytes this node has that have no place in the order yet. A topic comes
    again with each session that writes to it: the last row counts.
    """
    found = Counter[str]()
    for logs in (node.logs, *(logs for logs, _, _ in node.data_groups.held)):
        for entry in tuple(logs.machine.state.sessions.inputs.values()):
            topic, _ = partition_name(node.logs.machine, entry.partition)
            found[topic] += logs.sessions.unmerged_bytes(entry)
            yield topic, {"topic": topic, "bytes": found[topic]}


def _subscribers(node: ServedNode) -> ShownRows:
    for each in (yield from list_subscribers(node, ListSubscribers())).subscribers:
        yield f"{each.identity} {each.peer}", to_json(each)


def _groups(node: ServedNode) -> ShownRows:
    logs = node.logs
    for name, group in tuple(logs.machine.state.groups.by_id.items()):
        lags: dict[str, int] = {}
        for number, lag in (yield from group_lags(node, group)).items():
            topic = partition_name(logs.machine, number)[0]
            lags[topic] = lags.get(topic, 0) + lag
            yield None
        row = yield from group_row(node, name, group)
        yield name, {**to_json(row), "lags": lags}


def _sites(node: ServedNode) -> ShownRows:
    for each in list_sites(node, ListSites()).sites:
        yield each.name, to_json(each)


def _events(node: ServedNode) -> ShownRows:
    for number, each in enumerate(node.logs.machine.state.events.remembered):
        yield str(number), {"at_ms": each.at_ms, "kind": each.kind, "text": each.text}


def _elections(node: ServedNode) -> ShownRows:
    for each in elections(node, GetElections()).elections:
        yield f"{each.term} {each.leader}", to_json(each)


SECTIONS: Mapping[str, Callable[[ServedNode], ShownRows]] = {
    "cluster": _cluster,
    "totals": _totals,
    "disk": _disk,
    "troubles": _troubles,
    "nodes": _nodes,
    "sites": _sites,
    "topics": _topics,
    "partitions": _partitions,
    "sessions": _sessions,
    "waiting": _waiting,
    "subscribers": _subscribers,
    "groups": _groups,
    "views": kinds.views,
    "mirrors": kinds.mirrors,
    "keys": kinds.keys,
    "internal": kinds.internal,
    "events": _events,
    "elections": _elections,
}
