"""Which topics a subscriber reads: by name, or by pattern."""
