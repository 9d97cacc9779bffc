"""All scenarios; importing this package registers them."""

from tests.chaos.scenarios import disks, network, partitions, power, processes, rot, trust

__all__ = ["disks", "network", "partitions", "power", "processes", "rot", "trust"]
