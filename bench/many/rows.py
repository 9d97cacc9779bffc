"""The rows of `python -m bench many`: amounts, and the figures that are shown of each. Pure.

Targets compare with the checkout that `--against` names; a row without a target is for information.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bench.rounds.rows import Figure, Row, Target

PRESENT, BEFORE = "present", "before"
PATIENCE_S = 120


class Load(NamedTuple):
    """What a row runs (a function of bench/many/measure.py) and how much; numbers of node.toml that
    differ from those as shipped; the figures that are shown, and their targets.
    """

    run: str
    amounts: Mapping[str, Any]
    shown: Mapping[str, str]
    """Figures and their units."""
    targets: Mapping[str, Target] = {}
    limits: Mapping[str, int] = {}


MANY_SESSIONS = {
    "sessions": 20_000,
    "partitions": 200_000,
    "connections": 100_000,
    "connections_per_identity": 100_000,
}
"""Of node.toml, so that quotas and limits of either checkout do not stand in the way."""
LATENCY = {"p50_ms": "ms", "p99_ms": "ms", "nodes_cores": "cores"}
COUNTED = {"rounds_per_s": "1/s", "syncs_per_s": "1/s", "write_calls": "calls a record"}
DISK = {"disk_bytes_per_byte": "bytes a byte"}
STEPS = ("late", "ack", "leader_loop", "commit", "leader_sync", "follower_sync")
"""Of a record through the listener: due to handed over and to acknowledged, by the client; the
delay of the leader's loop; a round; its syncs by the leader and by the faster follower."""
BREAKDOWN = {f"{step}_{name}_ms": "ms" for step in STEPS for name in ("p50", "p99")}
OPENED = {"open_s": "s", "opened_share": "of 1", "read_share": "of 1"}
RESTARTS = {"sidecar_restart_s": "s", "node_restart_s": "s"}
HELD = {
    "sidecar_cores": "cores",
    "sidecar_connections": "1",
    "sidecar_descriptors": "1",
    "sidecar_rss_mb": "MB",
    "node_descriptors": "1",
    "node_rss_mb": "MB",
}
TRIPS = {f"trip_{name}_ms.{size}": "ms" for name in ("p50", "p99") for size in (1000, 100)}
BY_CLIENTS = {
    **TRIPS,
    "produced_mb_per_s.1000": "MB/s",
    "produced_mb_per_s.100": "MB/s",
    "produced_nodes_cpu_s_per_gb.1000": "s/GB",
    "produced_nodes_cpu_s_per_gb.100": "s/GB",
    "consumed_nodes_cpu_s_per_gb.1000": "s/GB",
}
BULK = {"mb_per_s": "MB/s", "nodes_cpu_s_per_gb": "s/GB", "cpu_s_per_gb": "s/GB", **DISK}
EMBEDDED = {**LATENCY, "publishers_cores": "cores", **OPENED, **COUNTED, **DISK}


def most(bound: float) -> Target:
    """A bound of the ratio, from above."""
    return Target(at_most=bound)


def least(bound: float) -> Target:
    """A bound of the ratio, from below."""
    return Target(at_least=bound)


def ours(bound: float) -> Target:
    """A bound of the present checkout's own figure, from above."""
    return Target(at_most=bound, of_ours=True)


def paced(run: str, rate: int, shown: Mapping[str, str], **targets: Target) -> Load:
    """One client at a rate."""
    amounts = {"rate": rate, "seconds": 8 if rate >= 1000 else 20}
    return Load(run, amounts, {**LATENCY, **shown, **COUNTED}, targets)


def embedded(sessions: int, rate: int, **targets: Target) -> Load:
    """Publishers in two processes."""
    amounts = {"sessions": sessions, "processes": 2, "rate": rate, "seconds": 8}
    return Load("publishers", {**amounts, "patience": PATIENCE_S}, EMBEDDED, targets, MANY_SESSIONS)


def shipped(sessions: int, rate: int, **targets: Target) -> Load:
    """Sessions through one sidecar."""
    amounts = {"sessions": sessions, "rate": rate, "seconds": 8, "patience": PATIENCE_S}
    loaded = {**LATENCY, **COUNTED, **DISK} if rate else {"nodes_cores": "cores"}
    shown = {**loaded, **HELD, **OPENED, "connected_share": "of 1", **RESTARTS}
    return Load("sidecar", amounts, shown, targets, MANY_SESSIONS)


LOADS: Mapping[str, Load] = {
    "single-1000": paced(
        "single",
        1000,
        {**DISK, "merged_p99_ms": "ms"},
        p50_ms=most(0.8),
        p99_ms=most(1.0),
        nodes_cores=most(1.3),
    ),
    "single-200": paced("single", 200, {}),
    "single-50": paced("single", 50, {}),
    "publishers-100": embedded(
        100, 10, p50_ms=ours(24), p99_ms=ours(80), publishers_cores=most(0.7)
    ),
    "sidecar-100": shipped(100, 10, p50_ms=ours(18), p99_ms=ours(50)),
    "sidecar-1000": shipped(1000, 1, p50_ms=ours(100), p99_ms=ours(500), open_s=ours(5)),
    "quiet-900": Load(
        "quiet",
        {"sessions": 900, "rate": 1000, "seconds": 8},
        {
            **LATENCY,
            "p50_ms.none": "ms",
            "p99_ms.none": "ms",
            "nodes_cores.none": "cores",
            "more_cores": "cores",
            "p99_ratio": "of 1",
            "quiet_cores": "cores",
            "open_s": "s",
        },
        {"more_cores": ours(0.05), "p99_ratio": ours(1.2)},
        MANY_SESSIONS,
    ),
    "quiet-10000": shipped(10_000, 0),
    "bulk-100-publishers": embedded(100, 200),
    "bulk-1000": Load(
        "bulk",
        {"size": 1000, "megabytes": 200},
        BULK,
        {"mb_per_s": least(1.2), "nodes_cpu_s_per_gb": most(0.85)},
    ),
    "bulk-100": Load(
        "bulk",
        {"size": 100, "megabytes": 80},
        BULK,
        {"mb_per_s": least(1.05), "nodes_cpu_s_per_gb": most(0.95)},
    ),
    "listener-1000": paced("listener", 1000, BREAKDOWN, p99_ms=most(0.8)),
    "listener-200": paced("listener", 200, BREAKDOWN, p99_ms=most(0.8)),
    "listener-50": paced("listener", 50, BREAKDOWN),
    "listener-clients": Load(
        "kafka_clients",
        {"megabytes": {"1000": 100, "100": 40}, "times": 2, "trips": 300},
        BY_CLIENTS,
        {
            "trip_p50_ms.1000": most(0.85),
            "trip_p50_ms.100": most(0.85),
            "produced_mb_per_s.1000": least(1.15),
            "produced_nodes_cpu_s_per_gb.1000": most(0.85),
        },
    ),
    "listener-requests": Load(
        "requests",
        {"seconds": 3, "connections": 32, "depth": 5},
        {"fetch_per_core_s": "1/s", "produce_per_core_s": "1/s"},
        {"fetch_per_core_s": least(1.1)},
    ),
    "producers-100": Load(
        "producers",
        {"count": 100, "rate": 10, "seconds": 8},
        {**LATENCY, "publishers_cores": "cores"},
    ),
    "busy-disk": Load(
        "busy_disk",
        {"rate": 1000, "seconds": 8},
        {
            **LATENCY,
            "listener_p50_ms": "ms",
            "listener_p99_ms": "ms",
            "disk_mb_per_s": "MB/s",
            "disk_busy_mb_per_s": "MB/s",
        },
    ),
    "partitions-1000": Load("partitions", {"count": 1000, "rate": 1000, "seconds": 8}, LATENCY),
    "first-record": Load(
        "first_records",
        {"topics": 20},
        {f"{who}_{name}_ms": "ms" for who in ("own", "listener") for name in ("p50", "p99")},
    ),
    "transactions": Load(
        "transactions",
        {"times": 100},
        {f"{name}_ms.{count}": "ms" for name in ("p50", "p99") for count in (1, 10)},
    ),
}
KEPT = {"rate", "size", "seconds", "processes", "patience", "connections", "depth", "times"}
"""Amounts that a quick look does not change."""


def amounts(load: Load, share: float, seconds: float | None) -> dict[str, Any]:
    """A share of the numbers of things, at the same rates; so many seconds of each load."""
    found = _share_of(load.amounts, share)
    if seconds is not None and "seconds" in found:
        found["seconds"] = seconds
    return found


def _share_of(given: Mapping[str, Any], share: float) -> dict[str, Any]:
    return {
        name: value
        if name in KEPT
        else _share_of(value, share)
        if isinstance(value, dict)
        else max(2, int(value * share))
        for name, value in given.items()
    }


def table() -> Iterator[Row]:
    """All rows."""
    for name, load in LOADS.items():
        for figure, unit in load.shown.items():
            yield Row(
                row=f"{name}.{figure}",
                what=f"{name}: {figure}",
                unit=unit,
                measure=name,
                ours=Figure(PRESENT, figure),
                peer=Figure(BEFORE, figure),
                target=load.targets.get(figure),
            )
