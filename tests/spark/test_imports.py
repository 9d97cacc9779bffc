"""What Spark's short-lived processes import: it is most of what a small query takes.

A process of Spark's own begins with as little, so each of these is one of its own, too.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

FOUND = "import pyspark_samelog"
WRITER = """
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_samelog import DefaultSource

schema = StructType([StructField("value", BinaryType())])
DefaultSource(CaseInsensitiveDict({"topic": "t", "config": "c"})).writer(schema, False)
"""
READ = """
from samelog.format import _kernels
from samelog.format.arrow import to_arrow
from samelog.spark.payload.payload import Shape, kafka_schema
from samelog.spark.plan.offsets import within

data = _kernels.build_batches([b"v"] * 9, timestamps=1, batch_bytes=999, max_record_bytes=99)
table = within(to_arrow(data, 0, len(data), topic="t", partition=1), (0, 1))
assert sum(map(len, Shape(kafka_schema(include_headers=False)).batches(table)))
"""


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        (FOUND, ("asyncio", "pyarrow", "samelog.publisher", "samelog.archiver")),
        (WRITER, ("asyncio", "pyarrow", "samelog.publisher", "samelog.spark.logs.nodes")),
        (READ, ("pandas", "samelog.archiver", "samelog.spark.logs.local_logs")),
    ],
)
def test_no_more_than_is_used(program: str, unwanted: tuple[str, ...]) -> None:
    told = f"{program}\nimport sys\nprint(sorted({{*sys.modules}} & {{*{unwanted!r}}}))"
    run = subprocess.run(
        [sys.executable, "-c", told],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("[]\n", 0), run.stderr


SETTLED = """
import gc

from samelog.spark.heap import settle_modules

settle_modules()
before = gc.get_freeze_count()
later = [[]]
settle_modules()
assert gc.get_freeze_count() <= before
assert any(each is later for each in gc.get_objects())
print(before > 1000)
"""


def test_what_is_imported_is_not_gone_through_by_the_collector() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SETTLED],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("True\n", 0), run.stderr
