"""Kafka's transactions: who coordinates them, and the APIs by which producers and tools ask."""
