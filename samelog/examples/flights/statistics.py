"""The pipeline `flights`: how late flights were, by carrier, origin and weather, week by week.

Flights are joined with the weather of their origin in the hour they were to leave, and counted in
windows of event time. A window is told again whenever flights have come for it: to a topic, where
the last record of a key counts, and to a lake, which has one row of each key.

Invariant: every micro-batch is in the topic once and in the lake once, whatever fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from samelog.spark.pipelines import (
    DataFile,
    LakeCommit,
    LakeTable,
    checkpoint_below,
    query_of,
    triggered,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "flights"
WITHOUT_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
FLIGHT = (
    "carrier STRING, origin STRING, dep_time BIGINT, dep_delay DOUBLE, arr_delay DOUBLE, "
    "time_hour TIMESTAMP"
)
OBSERVATION = (
    "origin STRING, time_hour TIMESTAMP, temp DOUBLE, precip DOUBLE, wind_speed DOUBLE, "
    "visib DOUBLE, offset BIGINT"
)
WEATHER = """CASE
    WHEN visib IS NULL THEN 'unknown'
    WHEN precip > 0 AND temp <= 34 THEN 'snow or ice'
    WHEN precip > 0 THEN 'rain'
    WHEN visib < 3 THEN 'fog'
    WHEN wind_speed >= 20 THEN 'wind'
    ELSE 'fair' END"""
"""Inches, degrees Fahrenheit, statute miles and miles per hour, as the data has them."""
WEEK = "7 days"
MONDAY = "4 days 5 hours"
"""Windows of weeks begin on Mondays, at midnight in New York's standard time (1970 did not)."""
KEYS = ("week", "carrier", "origin", "weather")
PARTITION_BY = ("month",)
LATE_MINUTES = 15
"""A flight that arrives so late, or later, counts as delayed in US statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flights:
    """Where flights and weather come from, and where the statistics go.

    Args:
        config: the path of a client.toml, on driver and executors.
        path: of the lake: a URL of Hadoop's file systems, or a path of the default one.
        flights, weather: topics of JSON with the columns of nycflights13.
        to: the topic of the statistics, which must exist.
        watermark: by how much flights may come later than younger ones, and still count.
    """

    config: str
    path: str
    flights: str = "flights"
    weather: str = "weather"
    to: str = "flight-delays"
    watermark: str = "60 days"

    def table(self, spark: SparkSession) -> LakeTable:
        """The lake."""
        return LakeTable(spark, self.path, PARTITION_BY)


def start(
    spark: SparkSession, job: Flights, *, trigger: str, checkpoint: str | None = None
) -> StreamingQuery:
    """Start the query. Raises SourceError."""
    told = {"config": job.config, "valueFormat": "json"}
    stream = spark.readStream.format("samelog").options(**told, startingOffsets="earliest")
    flights = stream.schema(FLIGHT).option("subscribe", job.flights).load()
    reader = spark.read.format("samelog").options(**told).schema(OBSERVATION)
    weather = newest(reader.option("subscribe", job.weather).load())
    delays = statistics(flights.withWatermark("time_hour", job.watermark), weather)
    sink = FlightsWriter(spark, job)
    writer = delays.writeStream.queryName(NAME).outputMode("update").foreachBatch(sink.write_batch)
    place = checkpoint or checkpoint_below(job.path, NAME)
    spark.conf.set(WITHOUT_DATA, "false")  # such a batch would only tidy up
    try:
        return triggered(writer.option("checkpointLocation", place), trigger).start()
    finally:
        spark.conf.unset(WITHOUT_DATA)


def newest(observations: DataFrame) -> DataFrame:
    """The last observation of each origin and hour: `origin`, `time_hour`, `weather`."""
    told = observations.withColumn("weather", f.expr(WEATHER))
    return told.groupBy("origin", "time_hour").agg(f.max_by("weather", "offset").alias("weather"))


def statistics(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Counts and mean delays (minutes) of each week, carrier, origin and weather."""
    joined = flights.join(f.broadcast(weather), ["origin", "time_hour"], "left")
    joined = joined.withColumn("weather", f.coalesce("weather", f.lit("unknown")))
    weeks = f.window("time_hour", WEEK, WEEK, MONDAY)
    counted = joined.groupBy(weeks.alias("w"), "carrier", "origin", "weather").agg(
        f.count(f.lit(1)).alias("flights"),
        f.count(f.when(f.isnull("dep_time"), 1)).alias("cancelled"),
        f.count(f.col("arr_delay")).alias("arrived"),
        f.count(f.when(f.col("arr_delay") >= LATE_MINUTES, 1)).alias("late"),
        f.round(f.avg("dep_delay"), 2).alias("mean_departure_delay"),
        f.round(f.avg("arr_delay"), 2).alias("mean_arrival_delay"),
    )
    month = f.date_format("w.start", "yyyy-MM").alias("month")
    return counted.select(month, f.col("w.start").alias("week"), "*").drop("w")


class FlightsWriter:
    """Takes the micro-batches, on the driver: each into the lake, and to the topic."""

    def __init__(self, spark: SparkSession, job: Flights) -> None:
        self._job = job
        self._table = job.table(spark)

    def write_batch(self, frame: DataFrame, batch: int) -> None:
        """A micro-batch: windows with all their flights so far. Raises SourceError."""
        frame.persist()
        try:
            self._to_lake(frame, batch)
            self._to_topic(frame, batch)
        finally:
            frame.unpersist()

    def _to_lake(self, frame: DataFrame, batch: int) -> None:
        """Replace the rows that have the same keys."""
        who = query_of(frame, NAME)
        if self._table.snapshot().batches.get(who, -1) >= batch:
            return
        old = self._files_of({row.month for row in frame.select("month").distinct().collect()})
        kept = self._table.read(old).join(frame, [*KEYS], "left_anti") if old else None
        rows = frame if kept is None else frame.unionByName(kept)
        commit = LakeCommit(operation="MERGE", remove=old, batch=(who, batch))
        self._table.append(rows.coalesce(1), f"{NAME}-{batch}", commit)

    def _files_of(self, months: set[str]) -> list[DataFile]:
        files = self._table.snapshot().files.values()
        return [file for file in files if dict(file.partition)["month"] in months]

    def _to_topic(self, frame: DataFrame, batch: int) -> None:
        key = f.concat_ws("|", f.date_format("week", "yyyy-MM-dd"), *KEYS[1:]).alias("key")
        records = frame.select(key, f.to_json(f.struct("*")).alias("value"))
        writer = records.coalesce(1).write.format("samelog").option("config", self._job.config)
        writer.options(topic=self._job.to, batchId=batch).mode("append").save()
