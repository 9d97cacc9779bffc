"""Partitions on other nodes, and other leaders, by Kafka's own tools."""
