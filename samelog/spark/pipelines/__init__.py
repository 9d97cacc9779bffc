"""Pipelines that people need, one file each: what `samelog pipeline run` runs; and lakes.

Each works with executors on other hosts: what they read and write is a topic, or lies where a URL
of Hadoop's file systems says. The names exported here are what a pipeline of one's own is made of
(samelog/examples/flights is one); they are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from samelog.spark.errors import LakeConflict, LakeError, NoSpark, PipelineError

if TYPE_CHECKING:
    from samelog.spark.pipelines.delta_log import DataFile, LakeCommit
    from samelog.spark.pipelines.lake import Lake, checkpoint_below, query_of
    from samelog.spark.pipelines.lake_table import LakeTable
    from samelog.spark.pipelines.running import triggered

__all__ = [
    "DataFile",
    "Lake",
    "LakeCommit",
    "LakeConflict",
    "LakeError",
    "LakeTable",
    "NoSpark",
    "PipelineError",
    "checkpoint_below",
    "query_of",
    "triggered",
]

_MODULES = {
    "DataFile": "delta_log",
    "Lake": "lake",
    "LakeCommit": "delta_log",
    "LakeTable": "lake_table",
    "checkpoint_below": "lake",
    "query_of": "lake",
    "triggered": "running",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: most of them need pyspark (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    return value
