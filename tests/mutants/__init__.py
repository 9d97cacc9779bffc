"""Planted bugs: one at least for each rule of the design, and what finds each.

Most are found by the simulators, in worlds drawn from seeds. Those about parts that are not
simulated (the Kafka listener, void batches, expiry, rights) are found by a test of the usual kind.
"""
