"""The data source `samelog` as Spark sees it: its readers and their tasks."""
