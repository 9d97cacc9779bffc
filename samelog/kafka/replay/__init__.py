"""A Kafka listener that serves topics as they came, in their own time (`samelog replay serve`)."""
