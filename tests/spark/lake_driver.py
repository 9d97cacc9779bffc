"""A driver of its own that fills a lake in small batches, until it is killed; its executors are
processes of their own.

python -m tests.spark.lake_driver DIRECTORY
"""

from __future__ import annotations

import sys

from samelog.spark.pipelines.lake import Lake, start
from tests.spark.conftest import start_session

TIMEOUT_S = 200


def main(directory: str) -> None:
    """Fill it with all there is."""
    spark = start_session("local-cluster[2,1,1024]", **{"spark.executor.memory": "512m"})
    source = {"directory": directory, "subscribe": "t", "maxOffsetsPerTrigger": "50"}
    lake = Lake(path=f"{directory}/lake", source={**source, "readMode": "local"})
    start(spark, lake, trigger="available-now").awaitTermination(TIMEOUT_S)


if __name__ == "__main__":
    main(sys.argv[1])
