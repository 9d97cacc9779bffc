"""What is replicated of topics whose keys count once."""
