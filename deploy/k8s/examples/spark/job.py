"""Counts the records of a topic by minute, from the copy of the machine that each task runs on."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import window

spark = SparkSession.builder.appName("ticks").getOrCreate()
# SAMELOG_DIRECTORY says where the copy is.
ticks = spark.read.format("samelog").option("subscribe", "ticks").load()
ticks.groupBy(window("timestamp", "1 minute")).count().orderBy("window").show(truncate=False)
spark.stop()
