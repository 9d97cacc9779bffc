"""Batch jobs over whole archives, for Spark: what one machine would take too long for."""
