"""All scenarios; importing this package registers them."""

from tests.chaos.scenarios import (
    disks,
    kafka,
    network,
    partitions,
    power,
    processes,
    rot,
    sidecars,
    starved,
    trust,
)

__all__ = [
    "disks",
    "kafka",
    "network",
    "partitions",
    "power",
    "processes",
    "rot",
    "sidecars",
    "starved",
    "trust",
]
