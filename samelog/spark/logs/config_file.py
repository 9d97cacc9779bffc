"""Which client.toml a host asks nodes with.

Invariant: a file that Spark brought to this host is its owner's only before anybody reads it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from samelog.config.schema.environment import CONFIG_VARIABLE
from samelog.spark.options import LogAccess, ReadMode

OWNER_ONLY = 0o600


def config_path(access: LogAccess) -> str | None:
    """The client.toml of this host, if somebody names it and nodes may be asked."""
    if access.mode is ReadMode.LOCAL:
        return None
    named = access.config or os.environ.get(CONFIG_VARIABLE)
    return named and (_brought_by_spark(named) or named)


def _brought_by_spark(name: str) -> str | None:
    """Where a file is that Spark brings to every host (`--files`, addFile) and that is named
    without a directory. Everybody may read what Spark brings; a key may be only its owner's.
    """
    if os.path.dirname(name) or os.path.exists(name):
        return None
    from pyspark import SparkFiles

    with suppress(AssertionError, AttributeError, OSError):  # no Spark runs; there is no such file
        path = SparkFiles.get(name)
        os.chmod(path, OWNER_ONLY)
        return path
    return None
