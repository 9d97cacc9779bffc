"""The data source `samelog`, as Spark finds it.

Spark loads this module in many short-lived processes, so it loads no more than it needs.
Invariant: making one costs nothing; options are checked before anything is read.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from samelog.spark.errors import BadOption
from samelog.spark.heap import settle_modules
from samelog.spark.options import Options, ValueFormat, parse_options
from samelog.spark.payload.payload import (
    Payload,
    check_schema,
    kafka_schema,
    select_columns,
    split_schema,
    typed_ddl,
)

if TYPE_CHECKING:
    from samelog.spark.payload.typed_values import SchemaValues
    from samelog.spark.sink import SinkOptions
    from samelog.spark.source.reading import TaskReader


class SamelogDataSource(DataSource):
    """`format("samelog")` of queries that read, or write; batch and streaming."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "samelog"

    @cached_property
    def _parsed(self) -> Options:
        return parse_options(self.options)

    def schema(self) -> StructType | str:
        """The columns of Spark's Kafka source, or those of the payload instead of `value`. Raises
        BadOption.
        """
        options = self._parsed
        settle_modules()
        if options.values.format is ValueFormat.BINARY:
            return select_columns(
                kafka_schema(include_headers=options.include_headers), options.columns
            )
        if options.columns:
            raise BadOption("columns: with a valueFormat, give a schema with the wanted columns")
        columns = options.values.schema or self._own_columns()
        if not columns:
            raise BadOption(
                f"valueFormat={options.values.format.value} needs the columns of the payload: give "
                'valueSchema, "carrier STRING, delay DOUBLE" for example, or a schema to the query '
                "(for JSON the topic's setting value_schema will do, with schema or registry its "
                "schema, if Spark has its types)"
            )
        return typed_ddl(columns, options.values, include_headers=options.include_headers)

    def _own_columns(self) -> str | None:
        """What the topics say of their values, if the query may take that."""
        values = self._parsed.values
        has_own = values.format in (ValueFormat.JSON, ValueFormat.SCHEMA) or values.registry
        if not has_own:
            return None
        from samelog.spark.payload.own_schema import own_schema

        return own_schema(self._parsed)

    def _tasks(self, schema: StructType) -> TaskReader:
        """What reads the tasks of a query with these columns. Raises BadOption."""
        from samelog.spark.source.reading import TaskReader

        options = self._parsed
        if options.access.where is not None:
            from samelog.spark.logs.row_filters import check_where

            check_where(options.access, options.selection.topics)
        payload = None
        if options.values.format is ValueFormat.BINARY:
            check_schema(schema, kafka_schema(include_headers=options.include_headers))
        else:
            columns = split_schema(schema, options.values, include_headers=options.include_headers)
            payload = Payload(options.values, columns, self._typed(columns))
            payload.check()
        access = options.access if payload is None else payload.access or options.access
        return TaskReader(access, schema, not options.fail_on_data_loss, payload)

    def _typed(self, columns: StructType) -> SchemaValues | None:
        """What reads values by their topics' schemas, if they are to be. Raises BadOption."""
        if self._parsed.values.format is not ValueFormat.SCHEMA:
            return None
        from samelog.spark.payload.typed_values import typed_values

        return typed_values(self._parsed, columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query. Raises BadOption."""
        from samelog.spark.source.batch_reader import NarrowingReader, SamelogBatchReader

        kind = NarrowingReader if self._parsed.pushdown else SamelogBatchReader
        return kind(self._parsed, self._tasks(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch query that writes. Raises BadOption."""
        from samelog.spark.sink import SamelogBatchWriter

        return SamelogBatchWriter(self._sink(schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A streaming query that writes. Raises BadOption."""
        from samelog.spark.sink import SamelogStreamWriter

        return SamelogStreamWriter(self._sink(schema, overwrite=overwrite))

    def _sink(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        from samelog.spark.sink import check_columns, parse_sink_options

        options = parse_sink_options(self.options)
        if overwrite:
            raise BadOption("a log cannot be overwritten: use mode append")
        check_columns(schema, options.topic, is_typed=options.is_typed)
        settle_modules()
        return options

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A streaming query. Raises BadOption."""
        try:
            from samelog.spark.source.stream_reader import SamelogStreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise BadOption("to read a stream takes Spark 4.2 or newer") from error

        return SamelogStreamReader(self._parsed, self._tasks(schema))
