"""Who may do what, and how much, as administrators say over the Kafka protocol."""
