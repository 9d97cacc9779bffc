"""Reads merged logs with PySpark: the data source `samelog`, for batch and streaming queries.

Spark finds it by itself, through the module pyspark_samelog; where another package keeps it from
doing so, `register` does it, or importing this package when there is a session.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from samelog.spark.lag import Lag, LagListener

__all__ = ["Lag", "LagListener", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("samelog")` known to a session."""
    from samelog.spark.source.data_source import SamelogDataSource

    spark.dataSource.register(SamelogDataSource)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: executors need none of them (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from samelog.spark import lag

    value: object = getattr(lag, name)
    return value


def _register_here() -> None:
    """In the session there is, if any; on executors, and without pyspark, there is none."""
    sessions = sys.modules.get("pyspark.sql.session")
    active = None if sessions is None else sessions.SparkSession.getActiveSession()
    if active is not None:
        register(active)


_register_here()
