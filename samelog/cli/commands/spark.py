"""`samelog spark`: batch jobs over whole archives, which Spark spreads over its executors.

Invariant: exit code 0 of `verify` means that something was checked, and that nothing was wrong
with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.restore import parse_time
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import END_OFFSET, OFFSET, PARTITION
from samelog.cli.output import (
    fail,
    following,
    json_option,
    print_json,
    print_table,
    spark_client_file_option,
    wants_json,
)
from samelog.config.document import absolute_place

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

    from samelog.spark.jobs.findings import Coverage, VerifyReport

master_option = click.option(
    "--master",
    help="Spark's master URL.  [default: what spark-submit says, else local[*]]",
)
topic_option = click.option(
    "--topic", "topics", multiple=True, help="Of this topic only; may be given again."
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Jobs over whole archives, spread over Spark's executors.

    \b
    Example:
      samelog spark verify --archive "s3://bucket/samelog?region=eu-central-1"
    """


@command.command()
@click.argument("directories", nargs=-1, type=click.Path(exists=True, file_okay=False))
@click.option("--archive", "archives", multiple=True, help="Copies: a directory, or a URL.")
@click.option(
    "--config", "clusters", multiple=True, metavar="FILE|URL", help="All nodes of this client.toml."
)
@topic_option
@master_option
@json_option
def verify(
    *,
    directories: tuple[str, ...],
    archives: tuple[str, ...],
    clusters: tuple[str, ...],
    topics: tuple[str, ...],
    master: str | None,
) -> None:
    """Check everything that is in DIRECTORIES (data directories of nodes, directories of
    subscribers), in archives, or at the nodes of clusters.

    Every file by itself: CRCs, offsets dense and in order, indexes, its SHA-256 against the
    manifest or the cluster's history. All files of a partition: no hole, no overlap. Copies of the
    same log against each other. Executors must see what is named here under the same names.

    \b
    Examples:
      samelog spark verify --archive /mnt/archive
      samelog spark verify /var/lib/samelog/data --archive "s3://bucket/samelog" --json
      spark-submit --master yarn $(which samelog) spark verify --config client.toml --topic flights
    """
    from samelog.spark.jobs.verify import VerifyTargets
    from samelog.spark.jobs.verify import verify as run

    if not (directories or archives or clusters):
        raise click.UsageError("name DIRECTORIES, --archive or --config")
    places = VerifyTargets(
        directories=[os.path.abspath(each) for each in directories],
        archives=[absolute_place(each) for each in archives],
        clusters=[absolute_place(each) for each in clusters],
        topics=topics,
    )
    with session(master) as spark:
        found = run(spark, places)
    show(found)
    if found.findings:
        fail("\n".join(map(str, found.findings)))
    if not found.checked:
        fail("there is nothing to check")


@command.command()
@click.argument("topic")
@click.option("--archive", required=True, help="The copies: a directory, or a URL.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Where records go.",
)
@spark_client_file_option
@click.option(
    "--checkpoint",
    required=True,
    help="A directory that says how far it is: run again with it, the job goes on.",
)
@click.option("--partition", type=PARTITION, help="Of this partition only.")
@click.option("--from-offset", type=OFFSET, help="From this offset on.")
@click.option("--to-offset", type=END_OFFSET, help="Up to this one, without it.")
@click.option("--from-time", callback=parse_time, help="From this time on (ISO 8601).")
@click.option("--to-time", callback=parse_time, help="Up to this time (ISO 8601).")
@click.option("--cluster", help="Whose copies, if the archive has several.")
@click.option("--log-id", help="Of which log, if the topic had several.")
@master_option
@json_option
def republish(
    *,
    topic: str,
    archive: str,
    target: str,
    config: str,
    checkpoint: str,
    partition: int | None,
    from_offset: int | None,
    to_offset: int | None,
    from_time: int | None,
    to_time: int | None,
    cluster: str | None,
    log_id: str | None,
    master: str | None,
) -> None:
    """Publish archived records of TOPIC again, exactly once: from copies as segments or as Parquet,
    into the same partitions of another topic, in their order, with keys, headers and timestamps.

    \b
    Examples:
      samelog spark republish flights --archive /mnt/archive --to flights-again \\
        --config client.toml --checkpoint /var/lib/republish/flights
      samelog spark republish flights --archive "s3://bucket/samelog" --from-time 2026-03-01 \\
        --to-time 2026-03-02 --to march --config client.toml --checkpoint s3a://bucket/march --json
    """
    from samelog.spark.jobs.republish import Republishing, RepublishRange
    from samelog.spark.jobs.republish import republish as run
    from samelog.spark.options import Archive

    wanted = RepublishRange(
        topic=topic,
        partition=partition,
        first=from_offset,
        behind=to_offset,
        from_ms=from_time,
        to_ms=to_time,
    )
    job = Republishing(
        archive=Archive(absolute_place(archive), cluster, log_id),
        wanted=wanted,
        config=absolute_place(config),
        target=target,
        checkpoint=absolute_place(checkpoint),
    )
    with session(master) as spark:
        found = run(spark, job)
    read_to = {str(name): offset for name, offset in sorted(found.items())}
    if wants_json():
        print_json({"topic": topic, "target": target, "read_to": read_to})
        return
    print_table(("partition", "read to"), list(read_to.items()))


def tasks_done(tracker: StatusTracker) -> tuple[float, float | None, str]:
    """How many tasks of the stages that run are done, of how many."""
    infos = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    stages = [each for each in infos if each is not None]
    done = sum(each.numCompletedTasks for each in stages)
    return done, sum(each.numTasks for each in stages) or None, "tasks of Spark"


def show(found: VerifyReport) -> None:
    """What was checked; in JSON, what was found, too."""
    if wants_json():
        verified = bool(found.checked) and not found.findings
        print_json({"verified": verified, **found._asdict()})
        return
    columns = ("partition", "from", "to", "files", "bytes", "where")
    print_table(columns, [_row(each) for each in found.checked])


def _row(each: Coverage) -> tuple[object, ...]:
    name = f"{each.series.topic}-{each.series.partition}"
    return name, each.first, each.behind, each.files, each.size, each.series.where


@contextmanager
def session(master: str | None) -> Iterator[SparkSession]:
    """A Spark session, ended if it was not there before; on a terminal, how far its tasks are."""
    from samelog.spark.pipelines.session import spark_session

    with (
        spark_session("samelog", master=master) as spark,
        following(lambda: tasks_done(spark.sparkContext.statusTracker()), is_bytes=False),
    ):
        yield spark
