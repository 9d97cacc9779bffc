"""Making files durable without holding up the event loop."""
