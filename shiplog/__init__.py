"""Kafka-compatible log shipping: what an application imports.

Invariant: everything public is listed in `__all__`.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
