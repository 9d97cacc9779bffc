"""`samelog pipeline`: runs the pipelines of samelog.spark.pipelines.

Invariant: what this host lacks for Spark is said before anything is started.
"""

from __future__ import annotations

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.pipeline import flights, lake, query_topic


@click.group(cls=CommandGroup)
def command() -> None:
    """Run pipelines on Spark, over topics of a cluster.

    \b
    Examples:
      samelog pipeline run flights --config client.toml --path /lake/delays --picture delays.png
      samelog pipeline run --help
    """


@command.group()
def run() -> None:
    """Run the pipeline NAME.

    All of them take --master and --conf, as spark-submit does. They go on where they were stopped,
    and what they write is written once, whatever fails.

    \b
    Examples:
      samelog pipeline run flights --help
      samelog pipeline run flights --config client.toml --path hdfs://namenode/lake/delays \\
          --master spark://spark-master:7077 --conf spark.executor.memory=4g
    """


for each in (flights.command, lake.lake, lake.lake_replay, lake.lake_compact, query_topic.command):
    run.add_command(each)
