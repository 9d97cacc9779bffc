"""What the replicated state knows of records that nodes check."""
