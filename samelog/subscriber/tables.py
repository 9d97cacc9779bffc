"""Arrow tables of several chunks as one.

Invariant: a table without rows has the columns of any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samelog.format.arrow import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all, without copying. Raises ArrowMissing without pyarrow."""
    empty: Any = to_arrow(b"", 0, 0, topic="", partition=0)
    if not tables:
        return empty
    import pyarrow as arrow

    return tables[0] if len(tables) == 1 else arrow.concat_tables(tables)
