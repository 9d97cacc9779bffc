"""A node that says the same to every console: two minutes of a busy cluster, and then nothing new.

Time stands still behind them, so that pages look the same on every day.
"""

from __future__ import annotations

import math
from typing import Any

from samelog.format._kernels import crc32c
from samelog.http.console.alarms import alarms
from samelog.http.console.document import Document

LOOKS = 120
BEGAN_MS = 1_795_420_800_000
DAY_MS = 86_400_000
TOPICS = {"flights": 4, "orders": 2, "payments": 2, "telemetry": 8, "us.quotes": 2}
SETTINGS = {
    "orders": {"dedup.key": "first", "dedup.key.horizon": "7d"},
    "telemetry": {"retention.ms": "604800000"},
    "flights": {"value_schema": '{"flight": "int32", "dest": "string", "delay": "int32"}'},
}
SESSIONS = {
    "feed-ewr": ("flights", 41_200.0),
    "feed-jfk": ("flights", 30_900.0),
    "feed-lga": ("flights", 18_400.0),
    "gateway-1": ("payments", 6_100.0),
    "shop": ("orders", 9_800.0),
    "sensors": ("telemetry", 96_000.0),
}
GROUPS = {"billing": ("payments", 40), "dashboards": ("telemetry", 90_000), "search": ("orders", 0)}
NATIVE = "dashboards"
"""The group of samelog's own subscribers."""
VIEW, MIRROR = "late-flights", "us.quotes"
NODES = ("rt-1", "rt-2", "rt-3")
BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25]


def document(step: int) -> Document:
    """What the node says at one second of the two minutes."""
    now_ms = BEGAN_MS + 1000 * step
    found: dict[str, Any] = {
        "cluster": {"": _cluster(step, now_ms)},
        "totals": {"": _totals(step)},
        "disk": {"": {"used_bytes": 310 << 30, "free_bytes": 170 << 30}},
        "troubles": {"": {"archive_held": "telemetry-0, telemetry-1"}},
        "nodes": {name: _node(name, number, step) for number, name in enumerate(NODES)},
        "sites": {each["name"]: each for each in _sites()},
        "topics": {name: _topic(name, count) for name, count in TOPICS.items()},
        "partitions": {
            f"{name}/{index}": _partition(name, index, step)
            for name, count in TOPICS.items()
            for index in range(count)
        },
        "sessions": {name: _session(name, step) for name in SESSIONS},
        "waiting": {
            topic: {"topic": topic, "bytes": 4096 * (topic == "telemetry")}
            for topic, _ in SESSIONS.values()
        },
        "subscribers": {"reader": _subscriber(step)},
        "groups": {name: _group(name, step) for name in GROUPS},
        "views": {VIEW: _view()},
        "mirrors": {MIRROR: _mirror()},
        "keys": {f"orders/{index}": _keys(index, step) for index in range(TOPICS["orders"])},
        "internal": {"__consumer_offsets": _internal(step)},
        "elections": {str(term): row for term, row in _elections().items()},
        "certificates": {"own": {"expires_ms": BEGAN_MS + 9 * DAY_MS}},
    }
    found["alarms"] = alarms(found)
    return found


def _cluster(step: int, now_ms: int) -> dict[str, Any]:
    return {
        "cluster": "flights-eu",
        "node": "rt-1",
        "version": "0.1.0",
        "leader": "rt-2",
        "term": 7,
        "role": "follower",
        "commit_index": 981_220 + 40 * step,
        "applied_index": 981_220 + 40 * step,
        "first_index": 960_001,
        "last_index": 981_221 + 40 * step,
        "level": 1,
        "now_ms": now_ms,
    }


def _totals(step: int) -> dict[str, Any]:
    wave = round(9000 * math.sin(step / 9))
    counts = {"bounds": BOUNDS, "counts": [0, 4 * step, 30 * step, 61 * step, 9 * step, 2, 1, 0, 0]}
    return {
        "received_bytes": 202_400 * step + 11 * wave + 10**7,
        "received_records": 2_530 * step + wave // 8 + 10**6,
        "merged_bytes": 10**9,
        "sent_bytes": 610_000 * step,
        "sent_records": 7_600 * step,
        "publishers": 6,
        "readers": 3,
        **dict.fromkeys(("append_to_merged", "append_to_read", "commit"), counts),
    }


def _node(name: str, number: int, step: int) -> dict[str, Any]:
    is_late = name == "rt-3"
    return {
        "name": name,
        "host": name,
        "address": f"{name}.example:7000",
        "state": "maintenance" if is_late else "live",
        "detail": "",
        "boot": 12,
        "applied_index": 981_220 + 40 * step,
        "role": "leader" if name == "rt-2" else "follower",
        "number": number,
        "voter": True,
        "maintenance_until_ms": BEGAN_MS + 3_600_000 if is_late else 0,
        "not_ready": "",
        "age_s": 0.0 if number == 0 else 0.4,
        "connected": True,
        "match_index": None,
        "lag_records": round(900 + 700 * math.sin(step / 6)) if is_late else 0,
    }


def _sites() -> list[dict[str, Any]]:
    places = (("fra", ("rt-1", "rt-2"), 0, 0), ("lon", ("rt-3",), 120, 1539))
    return [
        {
            "name": name,
            "votes": True,
            "lag_ms": lag_ms,
            "members": [
                {"node": node, "voter": True, "lag_ms": lag_ms, "records": records}
                for node in nodes
            ],
        }
        for name, nodes, lag_ms, records in places
    ]


def _topic(name: str, count: int) -> dict[str, Any]:
    settings = SETTINGS.get(name, {})
    return {"name": name, "topic_id": crc_id(name), "partitions": count, "settings": settings}


def _view() -> dict[str, Any]:
    query = "SELECT flight, delay FROM flights WHERE delay > 15"
    row = _topic(VIEW, TOPICS["flights"])
    return {**row, "base": "flights", "query": query}


def _mirror() -> dict[str, Any]:
    there = crc_id("flights-us")
    return {
        "topic": MIRROR,
        "topic_id": crc_id(MIRROR),
        "cluster_id": there,
        "source_topic": "quotes",
        "log_id": crc_id("quotes"),
        "origins": [there],
        "keeps_epochs": True,
        "since_ms": BEGAN_MS - 40 * DAY_MS,
        "promoted_ms": -1,
        "ends": [],
        "settings": {},
        "schemas": 0,
        "partitions": TOPICS[MIRROR],
        "left_open": 0,
    }


def _keys(index: int, step: int) -> dict[str, Any]:
    end = _partition("orders", index, step)["end_offset"]
    return {
        "topic": "orders",
        "partition": index,
        "floor": 12_000 * index,
        "end_offset": end,
        "agreed_blocks": index,
        "indexed_to": end - 310,
        "covered_to": end - 9 * index,
        "entries": 27_400 + 9_100 * index,
        "trouble": "",
    }


def _internal(step: int) -> dict[str, Any]:
    feeds = [
        {"partition": number, "end_offset": 900 * number + step, "keys": number, "tombstones": 2}
        for number in (6, 17, 41)
    ]
    return {"name": "__consumer_offsets", "partitions": 50, "feeds": feeds}


def crc_id(name: str) -> str:
    """32 digits that follow from a name."""
    return f"{crc32c(name.encode(), 0):08x}" * 4


def _partition(name: str, index: int, step: int) -> dict[str, Any]:
    end = 40_000 * (index + 1) + len(name) * 31 * step
    return {
        "topic": name,
        "partition": index,
        "start_offset": 1000 * index,
        "end_offset": end,
        "durable_offset": end - (12 if name == "telemetry" else 0),
        "segments": 6 + index,
        "size_bytes": end * 96,
        "checksum": crc32c(f"{name}{index}{end}".encode(), 0),
        "committed_offset": end,
        "merged_offset": end - (40 if name == "telemetry" else 0),
        "halted": "",
        "wanted_offset": 0,
    }


def _session(name: str, step: int) -> dict[str, Any]:
    topic, rate = SESSIONS[name]
    is_here = name != "gateway-1"
    return {
        "session": name,
        "identity": f"samelog://publisher/{name}",
        "run": 3,
        "is_open": True,
        "connected": is_here,
        "connected_ms": BEGAN_MS - 7_200_000 if is_here else -1,
        "last_record_ms": BEGAN_MS + 1000 * step if is_here else BEGAN_MS - 95_000,
        "received_bytes": round(rate * (3600 + step)),
        "bytes_per_s": rate if is_here else 0.0,
        "unmerged_bytes": 4096 if name == "sensors" else 0,
        "dedup_id": "gateway" if name == "gateway-1" else "",
        "topics": [topic],
    }


def _subscriber(step: int) -> dict[str, Any]:
    part = {"topic": "flights", "partition": 0, "segment": 0, "byte": 0, "lag_bytes": 18_000}
    return {
        "identity": "samelog://subscriber/warehouse",
        "peer": "10.0.4.17:51514",
        "connected_ms": BEGAN_MS - 3_600_000,
        "sent_bytes": 610_000 * step,
        "bytes_per_s": 610_000.0,
        "partitions": [part],
    }


def _group(name: str, step: int) -> dict[str, Any]:
    topic, lag = GROUPS[name]
    behind = max(0, round(lag * (1 - step / 150) + lag / 9 * math.sin(step / 7)))
    members = 0 if name == "search" else 2
    return {
        "group": name,
        "state": "Stable" if members else "Empty",
        "protocol_type": "native" if name == NATIVE else "consumer",
        "protocol": "uniform" if name == NATIVE else "cooperative-sticky",
        "members": members,
        "generation": 14,
        "lag": behind,
        "lags": {topic: behind},
    }


def _elections() -> dict[int, dict[str, Any]]:
    silent, broke = "the leader was silent for too long", "the connection to 0, which led, broke"
    rows = ((5, 86_000, "rt-3", silent), (6, 41_000, "rt-1", broke), (7, 9_000, "rt-2", broke))
    return {
        term: {"at_ms": BEGAN_MS - 1000 * ago_s, "term": term, "leader": leader, "why": why}
        for term, ago_s, leader, why in rows
    }
