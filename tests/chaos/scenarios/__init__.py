"""All scenarios; importing this package registers them."""

from tests.chaos.scenarios import (
    amnesia,
    disks,
    hostile,
    kafka,
    network,
    partitions,
    placement,
    power,
    processes,
    rot,
    sidecars,
    starved,
    transactions,
    trust,
)

__all__ = [
    "amnesia",
    "disks",
    "hostile",
    "kafka",
    "network",
    "partitions",
    "placement",
    "power",
    "processes",
    "rot",
    "sidecars",
    "starved",
    "transactions",
    "trust",
]
