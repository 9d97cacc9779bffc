"""Mirrors of topics of other clusters in the replicated state."""
