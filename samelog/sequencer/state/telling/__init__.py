"""What is told of the cluster as records of the topic `__events`."""
