"""Transactions in the replicated state: what is decided once, and carried out in many places."""
