"""Kafka's wire format: bytes to values and back. Nothing here decides or waits."""
