"""Fault injectors: each sets up, injects, heals, and says in one line why it may not be used."""
