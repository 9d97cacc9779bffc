"""What makes Spark find the data source by itself: it looks for modules that are named like this."""

from shiplog.spark.source import ShiplogDataSource as DefaultSource

__all__ = ["DefaultSource"]
