"""Counts the records of a topic by minute, from the nodes."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import window

spark = SparkSession.builder.appName("minutes").getOrCreate()
# SAMELOG_CONFIG says where the nodes are, and with which certificate they are asked.
ticks = spark.read.format("samelog").option("subscribe", "ticks").load()
ticks.groupBy(window("timestamp", "1 minute")).count().orderBy("window").show(truncate=False)
spark.stop()
