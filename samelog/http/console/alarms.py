"""What is wrong, by a console's document alone, under the names that the alerts of Prometheus have.

A console sees the present only: what an alert concludes from an hour (rates, trends) is not here.
docs/operations.md says of each what to do; `files/runbooks.json` is made from it.

Invariant: a function of the document; every alarm has a page in the runbooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from samelog.admin.answers import FRESH_S, NodeState
from samelog.http.console.document import Document, Section, ShownRow

DAY_S = 86_400
EXPIRES_DAYS, EXPIRES_NOW_DAYS = 14, 2
DISK_FREE_SHARE_MIN = 0.1
SITE_BEHIND_MS = 60_000
CRITICAL, WARNING = "critical", "warning"


class Alarm(NamedTuple):
    """`name` is that of the alert; `about`: a node, partition, certificate or the cluster."""

    severity: str
    name: str
    about: str
    text: str


def alarms(document: Document) -> Section:
    """The alarms of a document, by name and what they are about."""
    found = (alarm for look in LOOKS for alarm in look(document))
    return {f"{each.name} {each.about}": each._asdict() for each in found}


def _one(document: Document, section: str) -> ShownRow:
    return document.get(section, {}).get("", {})


def _cluster(document: Document) -> Iterator[Alarm]:
    cluster = _one(document, "cluster")
    if cluster.get("leader") is None:
        yield Alarm(CRITICAL, "SamelogNoLeader", "cluster", "no leader is known: nothing is merged")
    for key, event in document.get("events", {}).items():
        name = EVENTS.get(event["kind"])
        if name is not None:
            yield Alarm(CRITICAL, name, f"event {key}", event["text"])


EVENTS = {"possible-loss": "SamelogPossibleLoss", "file-lost": "SamelogDamage"}


def _nodes(document: Document) -> Iterator[Alarm]:
    for name, node in document.get("nodes", {}).items():
        if node["state"] == NodeState.MAINTENANCE.value:
            continue
        if node["state"] == NodeState.OFFLINE.value or node["age_s"] > FRESH_S:
            text = f"{name} was not heard for {node['age_s']:.0f} s"
            yield Alarm(WARNING, "SamelogPeerLost", name, text)
        elif node["not_ready"]:
            yield Alarm(WARNING, "SamelogNotReady", name, node["not_ready"])


def _sites(document: Document) -> Iterator[Alarm]:
    for name, site in document.get("sites", {}).items():
        if site["members"] and not 0 <= site["lag_ms"] <= SITE_BEHIND_MS:
            said = f"lacks records for {site['lag_ms'] / 1000:.0f} s"
            text = f"{name} {said if site['lag_ms'] > 0 else 'does not say how far it is behind'}"
            yield Alarm(WARNING, "SamelogSiteBehind", name, text)


def _partitions(document: Document) -> Iterator[Alarm]:
    for key, each in document.get("partitions", {}).items():
        if each["halted"]:
            yield Alarm(CRITICAL, "SamelogPartitionHalted", key, each["halted"])
        if each["wanted_offset"] > each["end_offset"]:
            text = f"no node has the records up to offset {each['wanted_offset']}"
            yield Alarm(CRITICAL, "SamelogRecordsMissing", key, text)


def _sessions(document: Document) -> Iterator[Alarm]:
    for name, session in document.get("sessions", {}).items():
        for held in session.get("held", ()):
            text = (
                f"{held['size_bytes']} bytes for topic {held['topic']} are held: it was deleted "
                f"before they were merged. Decide with samelog session continue {name}, or discard"
            )
            yield Alarm(WARNING, "SamelogRecordsHeld", name, text)


TROUBLES: tuple[tuple[str, str, str], ...] = (
    (CRITICAL, "replica_halted", "SamelogReplicaHalted"),
    (CRITICAL, "may_not_vote", "SamelogMayNotVote"),
    (CRITICAL, "intake_stopped", "SamelogIntakeStopped"),
    (CRITICAL, "diverged", "SamelogDivergence"),
    (CRITICAL, "damage", "SamelogDamage"),
    (WARNING, "config_refused", "SamelogConfigRefused"),
    (WARNING, "policy_refused", "SamelogPolicyRefused"),
    (WARNING, "policies_differ", "SamelogPoliciesDiffer"),
    (WARNING, "copies_fail", "SamelogCopiesFail"),
    (WARNING, "archive_held", "SamelogArchiveHeld"),
)
"""What a node says of itself in words: severity, field, alert."""


def _troubles(document: Document) -> Iterator[Alarm]:
    node, said = _one(document, "cluster").get("node", ""), _one(document, "troubles")
    for severity, field, name in TROUBLES:
        if said.get(field):
            yield Alarm(severity, name, node, said[field])


def _host(document: Document) -> Iterator[Alarm]:
    cluster, disk = _one(document, "cluster"), _one(document, "disk")
    whole = disk.get("free_bytes", 0) + disk.get("used_bytes", 0)
    if whole and disk["free_bytes"] < DISK_FREE_SHARE_MIN * whole:
        text = f"{100 * disk['free_bytes'] / whole:.1f} % of the disk is free"
        yield Alarm(WARNING, "SamelogDiskFull", cluster["node"], text)
    for name, each in document.get("certificates", {}).items():
        yield from _certificate(name, each, cluster)


def _certificate(name: str, row: ShownRow, cluster: ShownRow) -> Iterator[Alarm]:
    days = (row["expires_ms"] - cluster["now_ms"]) / (1000 * DAY_S)
    if days < EXPIRES_DAYS:
        is_urgent = days < EXPIRES_NOW_DAYS
        alert = "SamelogCertificateExpiresNow" if is_urgent else "SamelogCertificateExpires"
        left = f"{days:.0f} days" if days >= EXPIRES_NOW_DAYS else f"{24 * days:.0f} hours"
        when = f"expires in {left}" if days > 0 else "has expired"
        about = f"{cluster['node']} {name}"
        yield Alarm(CRITICAL if is_urgent else WARNING, alert, about, f"{name} {when}")


LOOKS: tuple[Callable[[Document], Iterator[Any]], ...] = (
    _cluster,
    _nodes,
    _sites,
    _partitions,
    _sessions,
    _troubles,
    _host,
)
