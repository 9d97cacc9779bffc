"""What is told of the replicated state as topics (docs/kafka-state-topics.md)."""
