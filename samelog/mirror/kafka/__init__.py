"""Apache Kafka as a source of mirrors, by its protocol."""
