"""Lets Spark find the data source by itself: it looks for modules with names like this one."""

from samelog.spark.source.data_source import SamelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
