"""`samelog pipeline run query-topic`: a topic that an SQL statement defines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samelog.cli.commands.pipeline.common import (
    ensure_topic,
    session,
    spark_options,
    trigger_option,
    wait_for_end,
)
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import PARTITION_COUNT
from samelog.cli.output import report, spark_client_file_option
from samelog.format.texts import NotUtf8, decode_file
from samelog.spark.errors import BadOption

if TYPE_CHECKING:
    from samelog.spark.pipelines.query_definition import Definition


@click.command("query-topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@spark_client_file_option
@click.option("--checkpoint", required=True, metavar="URL", help="Where Spark notes how far it is.")
@click.option("--sql", help="The statement.")
@click.option(
    "--to",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="The topic that it defines; made if it is not there.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="TOPIC=SCHEMA",
    help='A topic of JSON, its columns: "flights=carrier STRING, delay DOUBLE"; may be repeated.',
)
@click.option(
    "--watermark",
    "watermarks",
    multiple=True,
    metavar="TOPIC=COLUMN, DELAY",
    help='How late its records may be: "flights=time_hour, 1 hour"; may be repeated.',
)
@click.option("--key", metavar="COLUMN", help="Whose values are the records' keys.")
@click.option("--format", "format_", type=click.Choice(("json", "arrow")), help="Of the values.")
@click.option("--output-mode", type=click.Choice(("append", "update")), help="As Spark's.")
@click.option(
    "--partitions",
    default=1,
    show_default=True,
    type=PARTITION_COUNT,
    help="Of the topic, if it is made.",
)
@trigger_option("1 second")
@spark_options
def command(
    *,
    file: str | None,
    config: str,
    checkpoint: str,
    sources: Sequence[str],
    watermarks: Sequence[str],
    format_: str | None,
    partitions: int,
    trigger: str,
    master: str | None,
    conf: dict[str, str],
    **query: str | None,
) -> None:
    """A topic that an SQL statement over other topics defines.

    What is defined is in FILE, a TOML file, or in options; options go before FILE. Filters,
    projections, joins and windows, as Spark's streaming has them; every micro-batch is published
    whole, and once. Runs until it is stopped, and goes on where it was.

    \b
    Examples:
      samelog pipeline run query-topic delays.toml --config client.toml --checkpoint /cp/delays
      samelog pipeline run query-topic --config client.toml --checkpoint /cp/late \\
          --from "flights=carrier STRING, arr_delay DOUBLE" --to late --key carrier \\
          --sql "SELECT * FROM flights WHERE arr_delay > 60"
    \b
    FILE:
      [query]
      topic = "busy"
      sql = '''SELECT window.start AS hour, origin, count(*) AS flights FROM flights
               GROUP BY window(time_hour, "1 hour"), origin'''
      key = "origin"            # without: no keys
      format = "json"           # or arrow
      output_mode = "append"    # or update
      [[source]]
      topic = "flights"
      schema = "origin STRING, time_hour TIMESTAMP"
      watermark = "time_hour, 2 hours"
    """
    given = {**query, "format": format_}
    definition = _definition(file, given, sources, watermarks)
    with session("query-topic", master, conf) as spark:
        from samelog.spark.pipelines import query_topic

        ensure_topic(config, definition.topic, partitions)
        started = query_topic.start(
            spark, definition, config=config, trigger=trigger, checkpoint=checkpoint
        )
        done = wait_for_end(started, definition.name)
    report(
        {"topic": definition.topic, "batches": done.batches, "rows": done.rows},
        f"{done.rows:,} rows read in {done.batches} batch(es), for {definition.topic}",
    )


def _definition(
    file: str | None, given: dict[str, Any], sources: Sequence[str], watermarks: Sequence[str]
) -> Definition:
    """From a file, and options that go before what it says. Raises BadOption."""
    import tomllib

    from samelog.spark.pipelines.query_definition import parse_tables

    told: dict[str, Any] = {}
    if file is not None:
        try:
            told = tomllib.loads(decode_file(Path(file).read_bytes()))
        except (tomllib.TOMLDecodeError, NotUtf8) as error:
            raise BadOption(f"{file} is no TOML: {error}") from error
    renamed = {"topic" if name == "to" else name: text for name, text in given.items() if text}
    if renamed:
        told["query"] = {**told.get("query", {}), **renamed}
    lateness = dict(_pair("--watermark", text) for text in watermarks)
    unknown = lateness.keys() - {_pair("--from", text)[0] for text in sources}
    if unknown:
        raise BadOption(f"--watermark of {min(unknown)}, which no --from names")
    more = [
        {"topic": topic, "schema": schema, "watermark": lateness.get(topic, "")}
        for topic, schema in (_pair("--from", text) for text in sources)
    ]
    if more:
        told["source"] = [*told.get("source", []), *more]
    return parse_tables(told)


def _pair(option: str, text: str) -> tuple[str, str]:
    topic, equals, rest = (part.strip() for part in text.partition("="))
    if not (topic and equals and rest):
        raise click.BadParameter(f"{text!r} is not TOPIC=…", param_hint=option)
    return topic, rest
