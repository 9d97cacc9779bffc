"""Which group of replicas has what, and on which members: pure."""
