"""What a console's document says is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from samelog.http.console.alarms import alarms
from tests.console.seeded import BEGAN_MS, DAY_MS, LOOKS, document


def found(**changed: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Alarm and what it is about -> its severity, of a cluster that is well but for this."""
    well: dict[str, Any] = {
        name: section
        for name, section in document(LOOKS).items()
        if name not in ("troubles", "certificates", "nodes")
    }
    return {name: row["severity"] for name, row in alarms({**well, **changed}).items()}


def node(**changed: Any) -> dict[str, Any]:
    return {"state": "live", "age_s": 0.0, "not_ready": "", **changed}


def partition(**changed: Any) -> dict[str, Any]:
    return {"halted": "", "wanted_offset": 0, "end_offset": 9, **changed}


def site(lag_ms: int, *members: dict[str, Any]) -> dict[str, Any]:
    return {"name": "nyc", "votes": False, "lag_ms": lag_ms, "members": list(members)}


def expires(days: float) -> dict[str, int]:
    return {"expires_ms": round(BEGAN_MS + 1000 * LOOKS + days * DAY_MS)}


def test_nothing_is_wrong_with_a_cluster_that_is_well() -> None:
    assert found(sites={"nyc": site(60_000, {}), "lon": site(-1)}) == {}


@pytest.mark.parametrize(
    ("section", "row", "alarm", "severity"),
    [
        ("nodes", node(age_s=9.0), "SamelogPeerLost x", "warning"),
        ("nodes", node(state="offline"), "SamelogPeerLost x", "warning"),
        ("nodes", node(not_ready="it catches up"), "SamelogNotReady x", "warning"),
        ("sites", site(60_001, {}), "SamelogSiteBehind x", "warning"),
        ("sites", site(-1, {}), "SamelogSiteBehind x", "warning"),
        ("partitions", partition(halted="its disk fails"), "SamelogPartitionHalted x", "critical"),
        ("partitions", partition(wanted_offset=10), "SamelogRecordsMissing x", "critical"),
        ("certificates", expires(13), "SamelogCertificateExpires rt-1 x", "warning"),
        ("certificates", expires(1), "SamelogCertificateExpiresNow rt-1 x", "critical"),
        ("certificates", expires(-1), "SamelogCertificateExpiresNow rt-1 x", "critical"),
    ],
)
def test_what_is_wrong_is_told(
    section: str, row: dict[str, Any], alarm: str, severity: str
) -> None:
    assert found(**{section: {"x": row}}) == {alarm: severity}


def test_a_node_in_maintenance_is_no_alarm() -> None:
    assert found(nodes={"x": node(state="maintenance", age_s=99.0)}) == {}


def test_a_cluster_without_a_leader_a_full_disk_and_troubles_are_told() -> None:
    cluster = {"": {**document(LOOKS)["cluster"][""], "leader": None}}
    disk = {"": {"used_bytes": 95, "free_bytes": 5}}
    assert found(cluster=cluster, disk=disk, troubles={"": {"damage": "a segment"}}) == {
        "SamelogNoLeader cluster": "critical",
        "SamelogDiskFull rt-1": "warning",
        "SamelogDamage rt-1": "critical",
    }
