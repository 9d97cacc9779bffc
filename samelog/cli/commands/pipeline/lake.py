"""`samelog pipeline run lake`, `lake-replay` and `lake-compact`: merged logs as Parquet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from samelog.cli.commands.pipeline.common import (
    checkpoint_option,
    pairs,
    path_option,
    session,
    spark_options,
    trigger_option,
    wait_for_end,
)
from samelog.cli.output import (
    CommandT,
    following,
    print_json,
    print_table,
    report,
    spark_client_file_option,
    talk,
    wants_json,
)
from samelog.spark.errors import BadOption

if TYPE_CHECKING:
    from samelog.spark.pipelines.lake import Lake

HOUR_MS = 3_600_000
SOURCE_OPTIONS = {
    "topic": ("subscribe", "Topics, with commas."),
    "starting_offsets": ("startingOffsets", 'earliest, or {"topic": {"0": 23}}.'),
    "ending_offsets": ("endingOffsets", 'latest, or {"topic": {"0": 42}}; not included.'),
    "starting_timestamp": ("startingTimestamp", "From when, in ms since 1970."),
    "ending_timestamp": ("endingTimestamp", "Until when, in ms since 1970; not included."),
    "value_format": ("valueFormat", "json, csv, avro or arrow: values become columns."),
    "value_schema": ("valueSchema", 'The columns of values: "carrier STRING, delay DOUBLE".'),
}
"""Of the source, those that have a name of their own here; all others: --option."""


def source_options(function: CommandT) -> CommandT:
    """Gives the command one argument for each of SOURCE_OPTIONS, and `option`."""
    function = click.option(
        "--option",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="Any other option of Spark's source samelog; may be repeated.",
    )(function)
    for name, (_, text) in reversed(SOURCE_OPTIONS.items()):
        flag = "--" + name.replace("_", "-")
        function = click.option(flag, name, required=name == "topic", help=text)(function)
    return function


def partition_option(function: CommandT) -> CommandT:
    """Gives the command `partition_by`."""
    return click.option(
        "--partition-by",
        default="topic,date",
        show_default=True,
        metavar="COLUMNS",
        help="With commas; date and hour are those of the record's timestamp.",
    )(function)


def _lake(config: str, path: str, partition_by: str, told: dict[str, Any], name: str) -> Lake:
    from samelog.spark.pipelines.lake import Lake

    source = {"config": config, **told.pop("option")}
    source |= {SOURCE_OPTIONS[key][0]: text for key, text in told.items() if text is not None}
    columns = tuple(each.strip() for each in partition_by.split(",") if each.strip())
    return Lake(path=path, source=source, partition_by=columns, name=name)


@click.command("lake")
@spark_client_file_option
@path_option
@checkpoint_option
@source_options
@partition_option
@click.option("--name", default="lake", show_default=True, help="Of this query, in its lake.")
@trigger_option("1 minute")
@spark_options
def lake(
    *,
    config: str,
    path: str,
    checkpoint: str | None,
    partition_by: str,
    name: str,
    trigger: str,
    master: str | None,
    conf: dict[str, str],
    **told: Any,
) -> None:
    """Topics into partitioned Parquet, every record once.

    The lake is a Delta table: readers see whole micro-batches. Runs until it is stopped, and goes
    on where it was; with --trigger available-now, or an end, it ends.

    \b
    Examples:
      samelog pipeline run lake --config client.toml --topic orders --path hdfs:///lake/orders
      samelog pipeline run lake --config client.toml --topic orders --path /tmp/orders \\
          --value-format json --value-schema "id BIGINT, name STRING" --trigger available-now
    """
    with session("lake", master, conf) as spark:
        from samelog.spark.pipelines import lake as pipeline

        made = _lake(config, path, partition_by, told, name)
        query = pipeline.start(spark, made, trigger=trigger, checkpoint=checkpoint)
        done = wait_for_end(query, "lake")
        at = made.table(spark).snapshot()
    result = {
        "batches": done.batches,
        "rows": done.rows,
        "path": path,
        "version": at.version,
        "files": len(at.files),
        "bytes": sum(file.size for file in at.files.values()),
    }
    report(
        result,
        f"{done.rows:,} rows in {done.batches} batch(es); {path} is at version {at.version}: "
        f"{len(at.files)} files of {result['bytes']:,} bytes",
    )


@click.command("lake-replay")
@spark_client_file_option
@path_option
@checkpoint_option
@source_options
@partition_option
@spark_options
def lake_replay(
    *,
    config: str,
    path: str,
    checkpoint: str | None,
    partition_by: str,
    master: str | None,
    conf: dict[str, str],
    **told: Any,
) -> None:
    """Replace the rows of a range of the log, in an existing lake.

    In one commit: readers see the rows as they were, or as they are. Rows of the range that are
    missing are added, others are replaced. What a query that fills the lake will yet bring is left
    to it.

    \b
    Examples:
      samelog pipeline run lake-replay --config client.toml --path /lake/orders --topic orders \\
          --starting-offsets '{"orders": {"0": 100}}' --ending-offsets '{"orders": {"0": 200}}'
      samelog pipeline run lake-replay --config client.toml --path /lake/orders --topic orders \\
          --starting-timestamp 1735686000000 --ending-timestamp 1735772400000
    """
    if not any(text for key, text in told.items() if key.startswith(("starting_", "ending_"))):
        raise BadOption("a replay needs a range: --starting-offsets, --ending-timestamp and so on")
    with session("lake-replay", master, conf) as spark:
        from samelog.spark.pipelines.lake_upkeep import replay

        made = _lake(config, path, partition_by, told, "replay")
        done = replay(spark, made, checkpoint=checkpoint)
    if wants_json():
        print_json(done)
        return
    print_table(("topic", "partition", "start", "end"), [_cells(each) for each in done.ranges])
    talk(f"{done.removed} file(s) of {path} replaced by {done.added}")


@click.command("lake-compact")
@path_option
@click.option(
    "--target-mb",
    default=128,
    show_default=True,
    type=click.IntRange(1, 1 << 20),
    help="Of a file.",
)
@click.option(
    "--vacuum-hours",
    type=click.IntRange(0, 1_000_000),
    help="Then remove files that no reader needs, and that are older than this.",
)
@spark_options
def lake_compact(
    *, path: str, target_mb: int, vacuum_hours: int | None, master: str | None, conf: dict[str, str]
) -> None:
    """Put the small files of each partition of a lake together.

    May run while a query fills the lake. Old files stay, for those who read an older version, until
    --vacuum-hours removes them, and what crashes have left; take more hours than a query or a batch
    may last.

    \b
    Examples:
      samelog pipeline run lake-compact --path hdfs:///lake/orders --vacuum-hours 24
      samelog pipeline run lake-compact --path /lake/orders --target-mb 512 --json
    """
    with session("lake-compact", master, conf) as spark:
        from samelog.spark.pipelines.lake_table import LakeTable
        from samelog.spark.pipelines.lake_upkeep import compact

        table = LakeTable(spark, path)
        say = _silent if wants_json() else _say
        reached: list[int] = [0, 0]

        def reach(read: int, total: int) -> None:
            reached[:] = read, total

        with following(lambda: (reached[0], reached[1], "compacting")):
            done = compact(table, target=target_mb << 20, on_done=say, on_progress=reach)
        removed = 0
        if vacuum_hours is not None:
            removed = table.vacuum(time.time_ns() // 1_000_000 - vacuum_hours * HOUR_MS)
    report(
        {"partitions": [_as_json(each) for each in done], "vacuumed": removed},
        f"{len(done)} partition(s) compacted, {removed} file(s) removed",
    )


def _cells(each: Any) -> tuple[object, ...]:
    return each.topic, each.partition, each.start, each.end


def _as_json(each: Any) -> dict[str, object]:
    return {
        "partition": dict(each.partition),
        "before": each.before,
        "after": each.after,
        "bytes": each.size,
    }


def _silent(done: Any) -> None:
    """Show no progress: the result is printed at the end."""


def _say(done: Any) -> None:
    where = ", ".join(f"{name}={value}" for name, value in done.partition) or "all"
    talk(f"{where}: {done.before} files became {done.after}, {done.size:,} bytes")
