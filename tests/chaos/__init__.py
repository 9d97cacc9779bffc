"""Real faults on real processes: `python -m tests.chaos`, `make chaos`.

Each scenario runs a cluster of node processes with publishers and a subscriber under load, injects
one kind of fault, heals it, and lets a checker decide from the merged files alone.
"""
