"""Commands that move replicas of data groups."""
