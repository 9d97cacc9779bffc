"""What the seeded node answers to requests of pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from samelog.admin import answers, requests, views
from samelog.admin import placement_requests as place
from samelog.admin.mirror_answers import MirrorsPromoted
from samelog.admin.mirror_requests import PromoteTopics
from samelog.admin.task_answers import TaskInfo, TaskRows
from samelog.admin.topic_answers import PartitionTruncated
from samelog.format._kernels import crc32c
from tests.console.seeded import (
    BEGAN_MS,
    DAY_MS,
    GROUPS,
    LOOKS,
    NATIVE,
    NODES,
    TOPICS,
    document,
)

HOUR_MS = 3_600_000
FIRST_ID = (1 << 53) + 1
"""JavaScript has no such number."""
FEEDS = ("feed-ewr", "feed-jfk", "feed-lga")


def _files(request: requests.LogHistory) -> answers.LogHistoryPage:
    found = []
    for row in document(LOOKS)["partitions"].values():
        if row["topic"] != request.topic:
            continue
        step = row["end_offset"] // 9
        for number in range(9):
            at = BEGAN_MS - (9 - number) * 5 * HOUR_MS
            archived = at + DAY_MS if number < 3 else -1
            copied = at + DAY_MS if number in (1, 2, 3, 4) else -1
            size = step * 96 * (1 + (number * 7 + row["partition"]) % 4)
            place = row["topic"], row["partition"], number * step, (number + 1) * step
            found.append(
                answers.LogFile(*place, at, at + HOUR_MS, size, at, archived, "", "", copied)
            )
    return answers.LogHistoryPage(tuple(found), more=False)


def _records(request: requests.PeekRecords) -> views.RecordPage:
    rows = []
    for number in range(12):
        value = {"id": FIRST_ID + number, "flight": 1400 + number, "dest": "LAX"}
        if number != 1:
            value["delay"] = number * 7 % 23
        data = bytes(range(24)) if number == 7 else json.dumps(value).encode()
        key = None if number == 3 else f"N{51_000 + 37 * number}".encode()
        headers = (("samelog.session", FEEDS[number % 3].encode()), ("schema", b"flights-3"))
        at = BEGAN_MS + 90_000 + 17 * number
        rows.append(views.PeekedRecord(41_980 + number, at, key, data, len(data), headers))
    return views.RecordPage(0, 41_992, 41_992, tuple(rows))


ORDERS = json.dumps(
    {
        "format": "json",
        "columns": [
            {"name": "id", "type": "int64", "nullable": False},
            {"name": "sku", "type": "string"},
            {"name": "price", "type": "decimal128(9, 2)"},
        ],
    }
)


def _schemas(request: requests.ListSchemas) -> answers.SchemaPage:
    if request.topic == "orders":
        version = answers.SchemaInfo(3, BEGAN_MS - 12 * DAY_MS, "f", ORDERS)
        return answers.SchemaPage("orders", "backward", 3, (version,), more=False)
    return answers.SchemaPage(request.topic, "backward", 0, (), more=False)


def _merge_order(request: requests.GetMergeOrder) -> views.MergeOrder:
    found, offset = [], 30_000
    for number in range(120):
        ranges = []
        for index, feed in enumerate(FEEDS):
            records = (crc32c(f"{number}{feed}".encode(), 0) % 90) * (index != number % 5)
            if records:
                ranges.append(views.MergedRange(feed, 3, records, records * 96))
        at = BEGAN_MS + 1000 * number
        found.append(views.MergeInstruction(980_000 + number, 7, offset, at, tuple(ranges)))
        offset += sum(each.records for each in ranges)
    copies = tuple(
        views.CopyChecksum(name, at, crc32c(str(at).encode(), 0))
        for at in (32_768, 36_864)
        for name in NODES[: 3 if at == 32_768 else 2]
    )
    return views.MergeOrder(tuple(found), 28_672, crc32c(b"28672", 0), copies)


def _described(request: requests.DescribeTopic) -> answers.TopicDescription:
    """Partitions of the view only: pages do not ask for those of others."""
    found = document(LOOKS)
    row = found["views"].get(request.topic) or found["topics"][request.topic]
    info = answers.TopicInfo(**row)
    ends = (40_000 * (n + 1) for n in range(row["partitions"] if info.base else 0))
    parts = tuple(
        answers.PartitionInfo(
            request.topic,
            n,
            1000 * n,
            end,
            end,
            0,
            0,
            0,
            unread=n % 2,
            newest_unread=41_008 * (n % 2) - 1,
        )
        for n, end in enumerate(ends)
    )
    return answers.TopicDescription(info, parts)


def _group(request: requests.DescribeGroup) -> answers.GroupDescription:
    known = document(LOOKS)["groups"][request.group]
    topic, lag = GROUPS[request.group][0], known["lag"]
    info = answers.GroupInfo(*(known[name] for name in answers.GroupInfo.__struct_fields__))
    parts = tuple(
        answers.GroupPartition(
            topic, index, 0, 42_000, 42_000 - lag // 2, lag // 2, BEGAN_MS + 100_000, ""
        )
        for index in range(2)
    )
    now = BEGAN_MS + 1000 * LOOKS
    life = ("samelog://subscriber/dashboards", now - 3 * HOUR_MS, now - 90_000, now - 400, now - 20)
    members = tuple(
        answers.GroupMemberInfo(
            f"member-{index}",
            None,
            f"{request.group}-{index}",
            f"/10.0.4.{index}",
            b"",
            ((topic, index),),
            *(life if request.group == NATIVE else ()),
        )
        for index in range(known["members"])
    )
    return answers.GroupDescription(info, members, parts)


def _plan(request: requests.PlanArchive) -> answers.ArchivePlan:
    planned = tuple(
        answers.PlannedArchive("flights", index, 0, 14_000 + index, 3, 3 << 27, "older than 7 days")
        for index in range(4)
    )
    copies = answers.CopyProgress("s3://logs/flights-eu", 212, 3, "flights/1", 3 << 26, 1 << 28)
    policy = '[[rule]]\ntopics = "flights*"\nolder_than = "7d"\n'
    return answers.ArchivePlan(policy, "", planned, ("telemetry-0", "telemetry-1"), copies)


def _access(request: requests.GetAccess) -> views.Access:
    rows = (
        ("samelog://admin/operator", True, (), (), (), (), (), ()),
        ("samelog://publisher/feed-*", False, ("feed-*",), ("flights",), (), (), (), ()),
        ("samelog://subscriber/*", False, (), (), (), ("*",), ("dash*",), ()),
        ("samelog://subscriber/us", False, (), (), (), (), (), ("us.*",)),
    )
    expiries = {"own": 9, "http": 240, "kafka/public": 88, "authority": 3600}
    acls = (
        ("User:ann", "*", "topic", "flights", False, "read", True),
        ("User:ann", "*", "group", "dash", True, "read", True),
        ("User:bob", "10.0.4.9", "topic", "payments", False, "write", False),
    )
    return views.Access(
        tuple(views.GrantRow(*row) for row in rows),
        tuple(views.CertificateRow(n, BEGAN_MS + d * DAY_MS) for n, d in expiries.items()),
        tuple(views.AclRow(*row) for row in acls),
        ("ann", "bob"),
    )


def _whoami(request: requests.GetIdentity) -> views.Whoami:
    return views.Whoami("flights-eu", "rt-1", "0.1.0", "samelog://admin/operator", may_change=True)


def _placement(request: place.GetPlacement) -> answers.PlacementStatus:
    groups = tuple(
        answers.GroupPlacement(
            number,
            NODES[number % 3] if number != 4 else None,
            NODES if number == 0 else tuple(NODES[(number + n) % 3] for n in range(2 - number % 2)),
            3 if number == 0 else 2,
            {NODES[(number + 1) % 3]: 1_450 * (number == 3)},
            is_resetting=number == 2,
        )
        for number in range(6)
    )
    partitions = tuple(
        answers.PartitionPlacement(topic, index, group.group, group.leader, group.members)
        for number, (topic, index) in enumerate((t, n) for t in TOPICS for n in range(TOPICS[t]))
        for group in (groups[number % 6],)
    )
    return answers.PlacementStatus(groups, partitions, ("rt-3",))


def _task(number: int, kind: str, group: int, *said: str | None, ago: int = 0) -> TaskInfo:
    gets, loses, state, reason, waits_for = said
    began = -1 if number < 0 else BEGAN_MS + 1000 * (LOOKS - ago)
    return TaskInfo(
        number, kind, group, gets, loses, state or "", reason or "", waits_for or "", began
    )


def _tasks(request: object) -> TaskRows:
    lacks, late = "rt-3 lacks 1450 entries", "rt-3 is silent"
    found = (
        _task(12, "fill", 1, "rt-3", None, "running", "too few copies", lacks, ago=240),
        _task(13, "drain", 2, "rt-1", "rt-3", "paused", "rt-3 is drained", "", ago=600),
        _task(-1, "fill", 3, "rt-1", None, "waiting", "too few copies", ""),
        _task(-1, "replace", 5, None, "rt-3", "blocked", late, "no node has room"),
        _task(11, "lead", 4, "rt-2", None, "done", "leaders are uneven", "", ago=3_000),
    )
    return TaskRows(
        are_paused=False,
        running=found[:2],
        waiting=found[2:4],
        ended=found[4:],
    )


ANSWERS: Mapping[type[Any], Callable[[Any], object]] = {
    requests.LogHistory: _files,
    requests.DescribeTopic: _described,
    requests.PeekRecords: _records,
    requests.ListSchemas: _schemas,
    requests.GetMergeOrder: _merge_order,
    requests.DescribeGroup: _group,
    requests.PlanArchive: _plan,
    requests.GetAccess: _access,
    requests.GetIdentity: _whoami,
    place.GetPlacement: _placement,
    **dict.fromkeys((place.ListTasks, place.PauseTask, place.ResumeTask, place.CancelTask), _tasks),
    **dict.fromkeys((place.DrainNode, place.BalanceCluster), _tasks),
    requests.MoveLeadership: lambda request: answers.LeadershipMoved(request.to),
    requests.AlterTopic: lambda request: _described(request).topic,
    requests.CreateView: lambda request: answers.TopicInfo(request.view, "", 4, {}, "flights"),
    requests.TruncatePartition: lambda request: PartitionTruncated(
        request.topic, request.partition, 9
    ),
    PromoteTopics: lambda request: MirrorsPromoted(dict.fromkeys(request.topics, (0, 0))),
}
