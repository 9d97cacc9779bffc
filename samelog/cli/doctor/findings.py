"""What is well and what is not, by what was measured: the part of `samelog doctor` that decides.

Invariant: whatever is not well says what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from samelog.admin.answers import Resources
from samelog.cli.terminal import size_text
from samelog.runtime.descriptors import REMEDY

SYNC_SLOW_S, SYNC_BAD_S = 0.01, 0.1
DAYS_SOON, DAYS_NOW = 14.0, 2.0
"""As the alerts SamelogCertificateExpires and SamelogCertificateExpiresNow."""
NEW_CERTIFICATE = "issue a new one: samelog pki issue --help"
SAME_GRANTS = "let the files of all nodes say the same: who may what depends on who is asked"
NEW_AUTHORITY = "replace it in time: docs/security.md#a-new-authority"
OPEN_FILES_LEAST = 65_536
CLOCK_OFF_S = 2.0
"""An HTTP date has whole seconds: less cannot be seen."""
SITE_BEHIND_MS = 60_000
"""As the alert SamelogSiteBehind."""
DISK_FULL = 0.9
NEAR_LIMIT = 0.8
"""Of the descriptors that clients may have, as the alert SamelogFewDescriptors."""
WATCHERS_LEAST = 128


class Soundness(Enum):
    """How well something is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at; `remedy` is empty if it is well."""

    of: str
    subject: str
    verdict: Soundness
    said: str
    remedy: str = ""


def ok(of: str, subject: str, said: str) -> Diagnosis:
    """It is well."""
    return Diagnosis(of, subject, Soundness.OK, said)


def judge_syncs(of: str, seconds: Sequence[float]) -> Diagnosis:
    """How long writing 4 KiB and syncing it took, several times."""
    middle, worst = sorted(seconds)[len(seconds) // 2], max(seconds)
    said = f"{middle * 1000:.1f} ms, at worst {worst * 1000:.1f} ms"
    if middle < SYNC_SLOW_S:
        return ok(of, "fsync", said)
    verdict = Soundness.FAILED if middle >= SYNC_BAD_S else Soundness.WARNING
    remedy = "every acknowledgement waits for two syncs: use a disk with a protected write cache"
    return Diagnosis(of, "fsync", verdict, said, remedy)


def judge_disk(of: str, total: int, free: int, limit: int | None) -> list[Diagnosis]:
    """How full a disk is, and whether archiving begins before it is full."""
    said = f"{size_text(free)} of {size_text(total)} are free"
    findings = [ok(of, "disk", said)]
    if free < total * (1 - DISK_FULL):
        remedy = "make room, or lower the archiving policy's limit or time"
        findings = [Diagnosis(of, "disk", Soundness.WARNING, said, remedy)]
    if limit is None:
        return findings
    told = f"the archive's limit is {size_text(limit)}, the disk has {size_text(total)}"
    if limit < total:
        return [*findings, ok(of, "archive limit", told)]
    remedy = "lower limit in the archiving policy: the disk is full before it counts"
    return [*findings, Diagnosis(of, "archive limit", Soundness.FAILED, told, remedy)]


def judge_sharing(host: str, members: Mapping[str, int]) -> Diagnosis:
    """Whether members of one host that share a disk, and say how many they are, are no more."""
    names = ", ".join(members)
    said = f"{names} share a disk"
    few = {name: count for name, count in members.items() if count < len(members)}
    if not few:
        return ok(f"host {host}", "shares", said)
    told = ", ".join(f"{count} ({name})" for name, count in few.items())
    remedy = f"set [node] members_on_host = {len(members)} in each: together they use too much"
    said = f"{said}, and members_on_host is {told}"
    return Diagnosis(f"host {host}", "shares", Soundness.WARNING, said, remedy)


def judge_clock(of: str, *, is_synchronised: bool | None) -> Diagnosis:
    """Whether the kernel says that something keeps the clock right; None: it says nothing."""
    if is_synchronised:
        return ok(of, "clock", "synchronised")
    said = "the kernel does not say" if is_synchronised is None else "not synchronised"
    remedy = "run chrony or systemd-timesyncd: retention and latencies follow the clock"
    return Diagnosis(of, "clock", Soundness.WARNING, said, remedy)


def judge_difference(of: str, seconds: float) -> Diagnosis:
    """How far a node's clock is from this host's."""
    said = f"{seconds:+.0f} s from this host's"
    if abs(seconds) <= CLOCK_OFF_S:
        return ok(of, "clock", "as this host's")
    return Diagnosis(of, "clock", Soundness.WARNING, said, "synchronise the clocks of both hosts")


def judge_expiry(
    of: str, days: float, subject: str = "certificate", remedy: str = NEW_CERTIFICATE
) -> Diagnosis:
    """How long a certificate still counts."""
    said = f"expires in {days:.0f} days"
    if days < 0:
        said = f"expired {-days:.0f} days ago"
    if days >= DAYS_SOON:
        return ok(of, subject, said)
    verdict = Soundness.FAILED if days < DAYS_NOW else Soundness.WARNING
    return Diagnosis(of, subject, verdict, said, remedy)


def judge_open_files(of: str, limit: int) -> Diagnosis:
    """How many files a process started by this one may open."""
    said = f"a new process may open {limit:,}"
    if limit >= OPEN_FILES_LEAST:
        return ok(of, "descriptors", said)
    remedy = f"let it be {OPEN_FILES_LEAST:,}: LimitNOFILE= of systemd, or ulimit -Hn"
    return Diagnosis(of, "descriptors", Soundness.WARNING, said, remedy)


def judge_resources(of: str, found: Resources) -> list[Diagnosis]:
    """Judge how close the process of a node is to its limits."""
    most = found.client_descriptors_max
    said = f"{found.descriptors:,} of {found.descriptors_max:,} are open, clients may take {most:,}"
    remedy = f"{REMEDY} of that node, or let fewer clients connect to it"
    if found.descriptors >= most:
        said += ": clients are refused"
        descriptors = Diagnosis(of, "descriptors", Soundness.FAILED, said, remedy)
    else:
        descriptors = _judge_share(of, "descriptors", (found.descriptors, most), said, remedy)
    resident = found.resident_bytes, found.resident_bytes_max
    said = f"{size_text(resident[0])} of {size_text(resident[1])} are resident"
    remedy = "give its host or control group more memory, or lower [limits] of its node.toml"
    memory = _judge_share(of, "memory", resident, said, remedy)
    threads = found.threads, found.threads_max
    said = f"{threads[0]:,} of {threads[1]:,}" if threads[1] else f"{threads[0]:,}, without a limit"
    remedy = "raise TasksMax= of the unit, ulimit -u, or pids.max of its control group"
    return [descriptors, memory, _judge_share(of, "threads", threads, said, remedy)]


def _judge_share(
    of: str, subject: str, usage: tuple[int, int], said: str, remedy: str
) -> Diagnosis:
    """Judge a resource by how much is in use and its limit (0: there is none)."""
    used, limit = usage
    if limit == 0 or used <= NEAR_LIMIT * limit:
        return ok(of, subject, said)
    return Diagnosis(of, subject, Soundness.WARNING, said, remedy)


def judge_watchers(of: str, instances: int) -> Diagnosis:
    """How many inotify instances a user may have."""
    said = f"a user may have {instances}"
    if instances >= WATCHERS_LEAST:
        return ok(of, "inotify", said)
    remedy = f"sysctl fs.inotify.max_user_instances={WATCHERS_LEAST}"
    return Diagnosis(of, "inotify", Soundness.WARNING, said, remedy)


def judge_levels(levels: Mapping[str, int], level: int, waits_for: Sequence[str]) -> Diagnosis:
    """Whether all members are of one version, as far as it matters: their feature levels. One of 0
    is not known: the member says nothing, or the cluster has just begun.
    """
    said = ", ".join(f"{name} {supported}" for name, supported in sorted(levels.items()))
    if len(set(levels.values()) - {0}) > 1:
        remedy = "bring all nodes to one version: docs/upgrades.md"
        return Diagnosis(
            "cluster", "versions", Soundness.WARNING, f"feature levels: {said}", remedy
        )
    newest = max(levels.values(), default=level)
    if newest > level > 0:
        why = "; ".join(waits_for)
        told = f"feature level {level}, all support {newest}" + (f" ({why})" if why else "")
        remedy = "samelog cluster upgrade --finalize, once nobody wants to go back"
        return Diagnosis("cluster", "versions", Soundness.WARNING, told, remedy)
    return ok("cluster", "versions", f"all support feature level {newest}")


def judge_packages(of: str, missing: Sequence[str]) -> Diagnosis:
    """Whether a node can evaluate views and filters; who runs this has to be its Python."""
    if not missing:
        return ok(of, "filters", "views and filters can be evaluated")
    said = f"without {' and '.join(missing)} it refuses views and filters"
    remedy = "install samelog with the extra 'typed'"
    return Diagnosis(of, "filters", Soundness.WARNING, said, remedy)


def judge_partitions(troubles: Sequence[str], count: int) -> Diagnosis:
    """Whether every copy of a partition goes on; `troubles` say which does not, and why."""
    if not troubles:
        return ok("cluster", "partitions", f"{count} of them, none is halted")
    remedy = "docs/operations.md#samelogpartitionhalted"
    return Diagnosis("cluster", "partitions", Soundness.FAILED, "; ".join(troubles), remedy)


def judge_site(name: str, lag_ms: int) -> Diagnosis:
    """How long the oldest record has waited that the best member of a site lacks; -1: not known."""
    said = "nobody there says how far it is behind"
    if lag_ms >= 0:
        said = f"{lag_ms / 1000:.0f} s behind"
    if 0 <= lag_ms <= SITE_BEHIND_MS:
        return ok("cluster", f"site {name}", said)
    remedy = "docs/operations.md#samelogsitebehind"
    return Diagnosis("cluster", f"site {name}", Soundness.WARNING, said, remedy)


def judge_alike(
    subject: str, values: Mapping[str, Any], remedy: str, of: str = "nodes"
) -> Diagnosis:
    """Whether nodes say the same of what has to be the same."""
    if len({repr(value) for value in values.values()}) == 1:
        return ok(of, subject, f"alike in all {len(values)}")
    first = next(iter(values))
    others = [name for name in values if repr(values[name]) != repr(values[first])]
    said = f"{', '.join(others)} differ from {first}"
    return Diagnosis(of, subject, Soundness.FAILED, said, remedy)
