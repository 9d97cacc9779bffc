"""Commands that touch several tables of the replicated state."""
