"""Lets Spark find the data source by itself: it looks for modules with names like this one."""

from shiplog.spark.source import ShiplogDataSource as DefaultSource

__all__ = ["DefaultSource"]
