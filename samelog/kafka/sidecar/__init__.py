"""The Kafka listeners of the two sidecars: clients write to, and read from, local files."""
