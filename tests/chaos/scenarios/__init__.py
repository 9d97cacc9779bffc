"""All scenarios; importing this package registers them."""

from tests.chaos.scenarios import processes

__all__ = ["processes"]
