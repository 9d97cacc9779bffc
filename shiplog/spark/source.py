"""The data source `shiplog`, as Spark finds it.

Spark loads this module in many short-lived processes, so it loads no more than it needs.
Invariant: making one costs nothing; options are checked before anything is read.
"""

from __future__ import annotations

from functools import cached_property

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from shiplog.spark.columns import check_schema, kafka_schema
from shiplog.spark.options import Options, parse_options


class ShiplogDataSource(DataSource):
    """`spark.read.format("shiplog")` and `spark.readStream.format("shiplog")`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "shiplog"

    @cached_property
    def _parsed(self) -> Options:
        return parse_options(self.options)

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source. Raises BadOption."""
        return kafka_schema(include_headers=self._parsed.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query. Raises BadOption."""
        from shiplog.spark.batch_reader import ShiplogBatchReader

        check_schema(schema, self.schema())
        return ShiplogBatchReader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A streaming query. Raises BadOption."""
        from shiplog.spark.stream_reader import ShiplogStreamReader

        check_schema(schema, self.schema())
        return ShiplogStreamReader(self._parsed, schema)
