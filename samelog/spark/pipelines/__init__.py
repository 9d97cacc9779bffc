"""Pipelines that people need, one file each: what `samelog pipeline run` runs.

Each works with executors on other hosts: what they read and write is a topic, or lies where a URL
of Hadoop's file systems says.
"""
