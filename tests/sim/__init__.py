"""A deterministic world of Raft nodes: simulated clock, network and disks, faults drawn from one
seed.

`python -m tests.sim --seeds 200` runs many worlds, `--seed N` one of them again.
"""
