"""Verifies whole archives in parallel: every file is read once, by some task of a Spark job.

What it re-uses is what `samelog verify` does to one segment; what lies between files is looked at
when all tasks are done. Invariant: what was planned was checked, or the job fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samelog.spark.jobs.archives import plan_archive
from samelog.spark.jobs.directories import plan_directories
from samelog.spark.jobs.findings import Check, CheckOutcome, VerifyPlan, VerifyReport, deal, report
from samelog.spark.jobs.live import plan_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES_PER_CORE = 8
"""More than one, so that whoever is slow has fewer."""


@dataclass(frozen=True)
class VerifyTargets:
    """What is to be verified: directories with merged logs, archives (URLs or directories), and
    clusters (paths of client.toml); of all topics, or of some.
    """

    directories: Sequence[str] = ()
    archives: Sequence[str] = ()
    clusters: Sequence[str] = ()
    topics: Sequence[str] = ()


def plan(places: VerifyTargets) -> VerifyPlan:
    """All there is to check. Raises CopyFault, SourceError, AdminError, LogFormatError, OSError."""
    plans = [plan_archive(url, places.topics) for url in places.archives]
    plans += [plan_cluster(path, places.topics) for path in places.clusters]
    if places.directories:
        plans.append(plan_directories(places.directories, places.topics))
    whole = VerifyPlan()
    for each in plans:
        whole.tasks += each.tasks
        whole.findings += each.findings
    return whole


def verify(spark: SparkSession, places: VerifyTargets) -> VerifyReport:
    """Check everything at these places. Raises as `plan`."""
    planned = plan(places)
    if not planned.tasks:
        return report([], planned.findings)
    context = spark.sparkContext
    shares = deal(planned.tasks, context.defaultParallelism * SHARES_PER_CORE)
    outcomes = context.parallelize(shares, len(shares)).flatMap(check_all).collect()
    return report(outcomes, planned.findings)


def check_all(share: Iterable[Check]) -> Iterator[CheckOutcome]:
    """A task of Spark."""
    return (each.check() for each in share)
