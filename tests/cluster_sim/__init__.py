"""Whole clusters in one process and in simulated time: the real nodes, publishers and subscribers
on a simulated network, disk and clock, all from one seed.

`python -m tests.cluster_sim --seeds 100` runs many worlds, `--seed N` one of them again.
"""
