"""`__consumer_offsets` and `__transaction_state`, as Kafka clients read them."""
