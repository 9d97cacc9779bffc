"""Records that nodes check."""
