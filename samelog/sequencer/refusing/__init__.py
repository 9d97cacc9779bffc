"""Which records a leader does not plan, because they do not fit their topic's schema."""
