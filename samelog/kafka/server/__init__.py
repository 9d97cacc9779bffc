"""What listens for Kafka clients, and drives their connections."""
