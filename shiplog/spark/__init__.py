"""Reads merged logs with PySpark: the data source `shiplog`, for batch and streaming queries.

Spark finds it by itself, through the module pyspark_shiplog; where another package keeps it from
doing so, `register` does it, or importing this package when there is a session.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("shiplog")` known to a session."""
    from shiplog.spark.source import ShiplogDataSource

    spark.dataSource.register(ShiplogDataSource)


def _register_here() -> None:
    """In the session there is, if any; on executors, and without pyspark, there is none."""
    sessions = sys.modules.get("pyspark.sql.session")
    active = None if sessions is None else sessions.SparkSession.getActiveSession()
    if active is not None:
        register(active)


_register_here()
